/** Requests made from an OpenAPI document, as Schemathesis makes them: valid ones, and ones with one thing wrong. */
import * as fc from "fast-check"

// oxlint-disable-next-line typescript/no-explicit-any -- a JSON document, read as such
export type Json = { readonly [key: string]: any }

/** A number in all its digits, which JSON carries and JavaScript does not. */
class Digits {
  readonly digits: string
  constructor(digits: string) {
    this.digits = digits
  }
}

export interface Request {
  readonly operationId: string
  readonly method: string
  /** Path and query. */
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  /** What is wrong with it, if anything is. */
  readonly wrong: string | undefined
}

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
      path: document.servers[0].variables.base_url.default + path,
      parameters,
      body: requestBody?.content["application/json"].schema,
      responses
    }))
  )

/** No `__proto__`, which is refused. */
const plainJson = fc.jsonValue({ maxDepth: 2 }).filter((value) => !JSON.stringify(value).includes("__proto__"))

/** Writes a value as JSON, or, at the top, as it stands in a path, query or header. */
const write = (value: unknown): string => {
  if (value instanceof Digits) return value.digits
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}:${write(field)}`).join(",")}}`
  }
  return JSON.stringify(value) ?? "null"
}

const text = (value: unknown): string => typeof value === "string" ? value : write(value)

const minimum64 = -(2n ** 63n)
const maximum64 = 2n ** 63n - 1n

const digits = (value: bigint | number): Digits => new Digits(String(value))

export const requestsOf = (document: Json) => {
  const resolve = (schema: Json): Json =>
    schema.$ref ? document.components.schemas[schema.$ref.split("/").at(-1)] : schema

  /** Values that the schema allows; those at its boundaries among them. */
  const valid = (given: Json): fc.Arbitrary<unknown> => {
    const schema = resolve(given)
    if (schema.enum) return fc.constantFrom(...schema.enum)
    switch (schema.type) {
      case "integer": {
        const [min, max] = [BigInt(schema.minimum ?? minimum64), BigInt(schema.maximum ?? maximum64)]
        return fc.oneof(fc.constantFrom(min, max), fc.bigInt({ min, max })).map(digits)
      }
      case "string":
        return fc.oneof(
          fc.constantFrom("", " ", "\u{10ffff}", "\ufeff", "null", "0", "\\", `"`, "x".repeat(2000)),
          fc.string({ unit: "binary", maxLength: 40 })
        ).map((value) => value.replaceAll("\u0000", ""))
      case "object": {
        const { properties = {}, required = [] } = schema
        const fields = Object.entries<Json>(properties).map((
          [name, field]
        ): [string, fc.Arbitrary<unknown>] => [name, valid(field)])
        return fc.tuple(
          fc.record(Object.fromEntries(fields), { requiredKeys: required }),
          // What the document does not name is ignored.
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

  /** Values that the schema does not allow, with what is wrong. `inUrl`: everything is text there. */
  const invalid = (given: Json, inUrl: boolean): ReadonlyArray<readonly [wrong: string, value: unknown]> => {
    const schema = resolve(given)
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
      const [min, max] = [BigInt(schema.minimum ?? minimum64), BigInt(schema.maximum ?? maximum64)]
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
        : [...others, ["number", 1], ["U+0000", "a\u0000b"], ["lone surrogate", new Digits(`"\\ud800"`)]]
    }
    return [...others.filter(([wrong]) => wrong !== "object"), ["text", "x"], ["number", 1]]
  }

  const assemble = (
    { body: schema, method, operationId, parameters, path }: Operation,
    values: { readonly parameters: Json; readonly body: unknown; readonly query?: string; readonly rawBody?: string },
    wrong: string | undefined
  ): Request => {
    const query = new URLSearchParams()
    const headers: Record<string, string> = {}
    let target = path
    for (const { in: place, name } of parameters) {
      const value = values.parameters[name]
      if (place === "path") target = target.replace(`{${name}}`, encodeURIComponent(text(value)))
      else if (value === undefined) continue
      else if (place === "query") query.append(name, text(value))
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

  /** A cursor is nothing to make up, and a header is plain. */
  const parameterValues = (parameter: Json): fc.Arbitrary<unknown> =>
    parameter.name === "cursor"
      ? fc.constant(undefined)
      : parameter.in === "header"
      ? fc.stringMatching(/^[!#-~]{1,40}$/)
      : valid(parameter.schema)

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

  /** Every way to break a request of `operation` in one place. */
  const breaks = (operation: Operation) => {
    const list: Array<(values: { readonly parameters: Json; readonly body: unknown }) => Request> = []
    for (const { in: place, name, schema } of operation.parameters) {
      const wrongs = name === "cursor"
        ? [["no cursor", "x"], ["empty", ""]] as const
        : place === "header"
        ? [["empty", ""], ["too long", "x".repeat(256)], ["a space", "a b"]] as const
        : invalid(schema, true)
      for (const [wrong, value] of wrongs) {
        list.push(({ body, parameters }) =>
          assemble(operation, { parameters: { ...parameters, [name]: value }, body }, `${name}: ${wrong}`)
        )
      }
      if (place === "query" && name !== "cursor") {
        list.push(({ body, parameters }) => {
          const query = `${name}=${text(parameters[name] ?? "1")}`
          return assemble(operation, { parameters, body, query: `${query}&${query}` }, `${name}: repeated`)
        })
      }
    }
    if (operation.body === undefined) return list
    const { properties, required } = resolve(operation.body)
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
    /** Any valid request. */
    valid: fc.oneof(
      ...operations.map((operation) => validValues(operation).map((values) => assemble(operation, values, undefined)))
    ),
    /** Any request with one thing wrong. */
    invalid: fc.oneof(
      ...operations.map((operation) =>
        fc.tuple(validValues(operation), fc.constantFrom(...breaks(operation))).map(([values, broken]) =>
          broken(values)
        )
      )
    ),
    /** Each way to break a request, once. */
    boundaries: operations.flatMap((operation) => {
      const [values] = fc.sample(validValues(operation), { seed: 1, numRuns: 1 })
      return values === undefined ? [] : breaks(operation).map((broken) => broken(values))
    })
  }
}
