/** Generates requests from an OpenAPI document, as Schemathesis does: valid requests, and requests with one error. */
import * as fc from "fast-check"

// oxlint-disable-next-line typescript/no-explicit-any -- the generator reads any JSON document, without types
export type Json = { readonly [key: string]: any }

/** A text that is written to JSON without quoting: a number with all its digits, which a JavaScript number rounds. */
class Digits {
  readonly digits: string
  constructor(digits: string) {
    this.digits = digits
  }
}

/** A generated request to the service. */
export interface Request {
  readonly operationId: string
  readonly method: string
  /** The path and the query. */
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  /** The error in the request, in words; `undefined` for a valid request. */
  readonly wrong: string | undefined
}

/** An operation of the OpenAPI document; `body` is the JSON schema of its request body. */
export interface Operation {
  readonly operationId: string
  readonly method: string
  readonly path: string
  readonly parameters: ReadonlyArray<Json>
  readonly body: Json | undefined
  readonly responses: Json
}

const operationsOf = (document: Json): ReadonlyArray<Operation> =>
  Object.entries<Json>(document.paths).flatMap(([path, item]) =>
    Object.entries<Json>(item).map(([method, { operationId, parameters = [], requestBody, responses }]) => ({
      operationId,
      method: method.toUpperCase(),
      path: new URL(document.servers[0].variables.base_url.default).pathname + path,
      parameters,
      body: requestBody?.content["application/json"].schema,
      responses
    }))
  )

/** JSON values without the field name `__proto__`, which the service rejects. */
const plainJson = fc.jsonValue({ maxDepth: 2 }).filter((value) => !JSON.stringify(value).includes("__proto__"))

/** Writes a value as JSON, with all digits of each {@link Digits}. */
const write = (value: unknown): string => {
  if (value instanceof Digits) return value.digits
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}:${write(field)}`).join(",")}}`
  }
  return JSON.stringify(value) ?? "null"
}

/** Writes a value as a text for a path, a query or a header. */
const text = (value: unknown): string => typeof value === "string" ? value : write(value)

const minInt64 = -(2n ** 63n)
const maxInt64 = 2n ** 63n - 1n

const digits = (value: bigint | number): Digits => new Digits(String(value))

/** Makes generators of valid and invalid requests for all operations of an OpenAPI document. */
export const requestsOf = (document: Json) => {
  const resolve = (schema: Json): Json =>
    schema.$ref ? document.components.schemas[schema.$ref.split("/").at(-1)] : schema

  /** Generates values that the schema allows, including those at its boundaries. */
  const valid = (unresolved: Json): fc.Arbitrary<unknown> => {
    const schema = resolve(unresolved)
    if (schema.enum) return fc.constantFrom(...schema.enum)
    switch (schema.type) {
      case "integer": {
        const [min, max] = [BigInt(schema.minimum ?? minInt64), BigInt(schema.maximum ?? maxInt64)]
        return fc.oneof(fc.constantFrom(min, max), fc.bigInt({ min, max })).map(digits)
      }
      case "string":
        return fc.oneof(
          fc.constantFrom(
            "",
            " ",
            "\u{10ffff}",
            "\ufeff",
            "null",
            "0",
            "\\",
            `"`,
            "\u{10ffff}".repeat(schema.maxLength ?? 2000)
          ),
          fc.string({ unit: "binary", maxLength: 40 })
        ).map((value) => value.replaceAll("\u0000", ""))
      case "object": {
        const { properties = {}, required = [] } = schema
        const fields = Object.entries<Json>(properties).map((
          [name, field]
        ): [string, fc.Arbitrary<unknown>] => [name, valid(field)])
        return fc.tuple(
          fc.record(Object.fromEntries(fields), { requiredKeys: required }),
          // The service ignores fields that the document does not declare.
          fc.dictionary(
            fc.string({ minLength: 1, maxLength: 5 }).map((name) => `x-${name}`),
            plainJson,
            { maxKeys: 2 }
          )
        ).map(([known, unknown]) => ({ ...unknown, ...known }))
      }
      default:
        throw new Error(`No values for ${JSON.stringify(schema)}`)
    }
  }

  /** Returns values that the schema rejects, each with its error. With `inUrl`, all values are texts. */
  const invalid = (unresolved: Json, inUrl: boolean): ReadonlyArray<readonly [wrong: string, value: unknown]> => {
    const schema = resolve(unresolved)
    const others: ReadonlyArray<readonly [string, unknown]> = inUrl
      ? [["empty", ""]]
      : [["null", null], ["array", []], ["object", {}], ["boolean", true]]
    if (schema.enum) {
      return [...others, ["no value of the enumeration", "lost"], [
        "another case",
        String(schema.enum[0]).toUpperCase()
      ]]
    }
    if (schema.type === "integer") {
      const [min, max] = [BigInt(schema.minimum ?? minInt64), BigInt(schema.maximum ?? maxInt64)]
      return [
        ...others,
        ["below the minimum", digits(min - 1n)],
        ["above the maximum", digits(max + 1n)],
        ["fraction", new Digits("1.5")],
        ["huge exponent", new Digits("1e400")],
        ["very many digits", new Digits("9".repeat(2000))],
        ["text", "one"],
        ...inUrl ? [["exponent", "1e1"] as const] : [["digits as text", "1"] as const]
      ]
    }
    if (schema.type === "string") {
      return inUrl
        ? []
        : [
          ...others,
          ["number", 1],
          ["U+0000", "a\u0000b"],
          ["lone surrogate", new Digits(`"\\ud800"`)],
          ...schema.maxLength === undefined ? [] : [["too long", "x".repeat(schema.maxLength + 1)] as const]
        ]
    }
    return [...others.filter(([wrong]) => wrong !== "object"), ["text", "x"], ["number", 1]]
  }

  /** Makes the request of an operation from the values of its parameters and its body. */
  const assemble = (
    { body: schema, method, operationId, parameters, path }: Operation,
    values: { readonly parameters: Json; readonly body: unknown; readonly query?: string; readonly rawBody?: string },
    wrong: string | undefined
  ): Request => {
    const query = new URLSearchParams()
    const headers: Record<string, string> = {}
    let target = path
    for (const { in: location, name } of parameters) {
      const value = values.parameters[name]
      if (location === "path") target = target.replace(`{${name}}`, encodeURIComponent(text(value)))
      else if (value === undefined) continue
      else if (location === "query") query.append(name, text(value))
      else headers[name] = text(value)
    }
    const search = [query.toString(), values.query ?? ""].filter((part) => part !== "").join("&")
    if (schema !== undefined) headers["Content-Type"] = "application/json"
    return {
      operationId,
      method,
      target: search === "" ? target : `${target}?${search}`,
      headers,
      body: schema === undefined ? undefined : values.rawBody ?? write(values.body),
      wrong
    }
  }

  /** Generates values of a parameter: never a cursor, which is opaque, and visible ASCII characters for a header. */
  const parameterValues = (parameter: Json): fc.Arbitrary<unknown> =>
    parameter.name === "cursor"
      ? fc.constant(undefined)
      : parameter.in === "header"
      ? fc.stringMatching(/^[!#-~]{1,40}$/)
      : valid(parameter.schema)

  /** Generates valid values for all parameters and the body of an operation. */
  const validValues = ({ body, parameters }: Operation) =>
    fc.record({
      parameters: fc.record(
        Object.fromEntries(
          parameters.map((parameter): [string, fc.Arbitrary<unknown>] => [
            parameter.name,
            parameter.required ? parameterValues(parameter) : fc.option(parameterValues(parameter), { nil: undefined })
          ])
        )
      ),
      body: body === undefined ? fc.constant(undefined) : valid(body)
    })

  /** Returns one function for each possible error, which makes an invalid request from valid values. */
  const invalidations = (operation: Operation) => {
    const list: Array<(values: { readonly parameters: Json; readonly body: unknown }) => Request> = []
    for (const { in: location, name, schema } of operation.parameters) {
      const invalidValues = name === "cursor"
        ? [["no cursor", "x"], ["empty", ""]] as const
        : location === "header"
        ? [["empty", ""], ["too long", "x".repeat(256)], ["a space", "a b"]] as const
        : invalid(schema, true)
      for (const [wrong, value] of invalidValues) {
        list.push(({ body, parameters }) =>
          assemble(operation, { parameters: { ...parameters, [name]: value }, body }, `${name}: ${wrong}`)
        )
      }
      if (location === "query" && name !== "cursor") {
        list.push(({ body, parameters }) => {
          const query = `${name}=${text(parameters[name] ?? "1")}`
          return assemble(operation, { parameters, body, query: `${query}&${query}` }, `${name}: repeated`)
        })
      }
    }
    if (operation.body === undefined) return list
    const { properties, required = [] } = resolve(operation.body)
    for (const name of required) {
      list.push(({ body, parameters }) => {
        const { [name]: _, ...rest } = body as Json
        return assemble(operation, { parameters, body: rest }, `${name}: missing`)
      })
    }
    for (const [name, schema] of Object.entries<Json>(properties)) {
      for (const [wrong, value] of invalid(schema, false)) {
        list.push(({ body, parameters }) =>
          assemble(operation, { parameters, body: { ...body as Json, [name]: value } }, `${name}: ${wrong}`)
        )
      }
      list.push(({ body, parameters }) => {
        const rawBody = write(body).replace(/\}$/, `,${JSON.stringify(name)}:1,${JSON.stringify(name)}:1}`)
        return assemble(operation, { parameters, body, rawBody }, `${name}: twice`)
      })
    }
    for (const [wrong, value] of invalid(operation.body, false)) {
      list.push(({ parameters }) => assemble(operation, { parameters, body: value }, `body: ${wrong}`))
    }
    const texts = ["", "{", "{}}", "[".repeat(20_000), `{"a":`, "NaN", "'x'", "\ufeff{}", `{"__proto__":{}}`]
    for (const rawBody of texts) {
      list.push(({ body, parameters }) =>
        assemble(operation, { parameters, body, rawBody }, `body: ${rawBody.slice(0, 20)}`)
      )
    }
    return list
  }

  const operations = operationsOf(document)

  return {
    operations,
    /** Generates any valid request. */
    valid: fc.oneof(
      ...operations.map((operation) => validValues(operation).map((values) => assemble(operation, values, undefined)))
    ),
    /** Generates any request with one error. */
    invalid: fc.oneof(
      ...operations.map((operation) =>
        fc.tuple(validValues(operation), fc.constantFrom(...invalidations(operation))).map(([values, broken]) =>
          broken(values)
        )
      )
    ),
    /** One request for each possible error. */
    boundaries: operations.flatMap((operation) => {
      const [values] = fc.sample(validValues(operation), { seed: 1, numRuns: 1 })
      return values === undefined ? [] : invalidations(operation).map((broken) => broken(values))
    })
  }
}
