/** Generates requests from an OpenAPI document, as Schemathesis does: valid requests, and requests with one error. */
import * as fc from "fast-check"

// oxlint-disable-next-line typescript/no-explicit-any -- the generator reads any JSON document, without types
export type Json = { readonly [key: string]: any }

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

/** The values of a request. Integers are bigints, and parameters that are `undefined` are absent. */
interface Values {
  readonly parameters: Json
  readonly body: unknown
}

/** An error, in words, and the function that adds it to valid values. */
type Mistake = readonly [wrong: string, add: (values: Values) => Values]

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

/** Writes a value as JSON, with all digits of each bigint. */
const write = (value: unknown): string =>
  JSON.stringify(value, (_, field: unknown) => typeof field === "bigint" ? JSON.rawJSON(String(field)) : field)

/** Makes the request of an operation. */
const assemble = ({ method, operationId, parameters, path, ...operation }: Operation, values: Values): Request => {
  const query = new URLSearchParams()
  const headers: Record<string, string> = operation.body === undefined ? {} : { "Content-Type": "application/json" }
  let target = path
  for (const { in: location, name } of parameters) {
    const value = values.parameters[name]
    if (value === undefined) continue
    if (location === "path") target = target.replace(`{${name}}`, encodeURIComponent(value))
    else if (location === "query") query.append(name, value)
    else headers[name] = value
  }
  if (query.size > 0) target += `?${query.toString()}`
  const body = operation.body === undefined ? undefined : write(values.body)
  return { operationId, method, target, headers, body, wrong: undefined }
}

const boundsOf = ({ maximum, minimum }: Json) => ({
  min: BigInt(minimum ?? -(2n ** 63n)),
  max: BigInt(maximum ?? 2n ** 63n - 1n)
})

/** Makes generators of valid and invalid requests for all operations of an OpenAPI document. */
export const requestsOf = (document: Json) => {
  const operations = operationsOf(document)

  const resolve = (schema: Json): Json =>
    schema.$ref ? document.components.schemas[schema.$ref.split("/").at(-1)] : schema

  /** Generates values that the schema allows, including those at its boundaries. */
  const valid = (unresolved: Json): fc.Arbitrary<unknown> => {
    const schema = resolve(unresolved)
    if (schema.enum) return fc.constantFrom(...schema.enum)
    if (schema.type === "integer") {
      const { max, min } = boundsOf(schema)
      return fc.oneof(fc.constantFrom(min, max), fc.bigInt({ min, max }))
    }
    if (schema.type === "string") {
      const longest = "\u{10ffff}".repeat(schema.maxLength ?? 2000)
      return fc.oneof(
        fc.constantFrom("", " ", "\u{10ffff}", "\ufeff", "null", "0", "\\", `"`, longest),
        fc.string({ unit: "binary", maxLength: 40 }).map((value) => value.replaceAll("\u0000", ""))
      )
    }
    const fields = Object.entries<Json>(schema.properties).map(([name, field]) => [name, valid(field)])
    return fc.record(Object.fromEntries(fields), { requiredKeys: schema.required })
  }

  /** Returns values that the schema rejects, each with its error. With `inUrl`, all values are texts. */
  const invalid = (unresolved: Json, inUrl: boolean): ReadonlyArray<readonly [wrong: string, value: unknown]> => {
    const schema = resolve(unresolved)
    const others: Json = inUrl ? { empty: "" } : { null: null, array: [], object: {}, boolean: true }
    if (schema.enum) {
      const upperCase = String(schema.enum[0]).toUpperCase()
      return Object.entries({ ...others, "no value of the enumeration": "lost", "another case": upperCase })
    }
    if (schema.type === "integer") {
      const { max, min } = boundsOf(schema)
      const numbers = [String(min - 1n), String(max + 1n), "1.5", "1e400", "9".repeat(2000)]
      const invalidNumbers = numbers.map((number) => [number, inUrl ? number : JSON.rawJSON(number)] as const)
      return [...Object.entries({ ...others, text: "one", digits: inUrl ? "1e1" : "1" }), ...invalidNumbers]
    }
    if (schema.type === "object") return Object.entries({ null: null, array: [], text: "x", number: 1 })
    if (inUrl) return []
    const tooLong = schema.maxLength === undefined ? {} : { "too long": "x".repeat(schema.maxLength + 1) }
    return Object.entries({ ...others, number: 1, "U+0000": "a\0b", surrogate: "\ud800", ...tooLong })
  }

  /** Generates values of a parameter: never a cursor, which is opaque, and visible ASCII characters for a header. */
  const parameter = ({ in: location, name, required, schema }: Json): fc.Arbitrary<unknown> => {
    if (name === "cursor") return fc.constant(undefined)
    const values = location === "header" ? fc.stringMatching(/^[!#-~]{1,40}$/) : valid(schema)
    return required ? values : fc.option(values, { nil: undefined })
  }

  /** Generates valid values for all parameters and the body of an operation. */
  const validValues = ({ body, parameters }: Operation): fc.Arbitrary<Values> =>
    fc.record({
      parameters: fc.record(Object.fromEntries(parameters.map((one) => [one.name, parameter(one)]))),
      body: body === undefined ? fc.constant(undefined) : valid(body)
    })

  const mistakesInParameter = ({ in: location, name, schema }: Json): ReadonlyArray<Mistake> => {
    const invalidValues = name === "cursor"
      ? [["no cursor", "x"], ["empty", ""]] as const
      : location === "header"
      ? [["empty", ""], ["too long", "x".repeat(256)], ["a space", "a b"]] as const
      : invalid(schema, true)
    return invalidValues.map(([wrong, value]): Mistake => [
      `${name}: ${wrong}`,
      (values) => ({ ...values, parameters: { ...values.parameters, [name]: value } })
    ])
  }

  const mistakesInBody = (schema: Json): ReadonlyArray<Mistake> => {
    const { properties, required } = resolve(schema)
    const mistakesInField = ([name, field]: readonly [string, Json]): ReadonlyArray<Mistake> => {
      const missing = required.includes(name) ? [["missing", undefined] as const] : []
      return [...invalid(field, false), ...missing].map(([wrong, value]) => [
        `${name}: ${wrong}`,
        (values) => ({ ...values, body: { ...values.body as Json, [name]: value } })
      ])
    }
    const inBody = invalid(schema, false).map(([wrong, body]): Mistake => [
      `body: ${wrong}`,
      (values) => ({ ...values, body })
    ])
    return [...Object.entries<Json>(properties).flatMap(mistakesInField), ...inBody]
  }

  /** Generates the values of an operation with each of its mistakes. */
  const broken = operations.flatMap((operation) =>
    [...operation.parameters.flatMap(mistakesInParameter), ...operation.body ? mistakesInBody(operation.body) : []]
      .map(([wrong, add]) => validValues(operation).map((values) => ({ ...assemble(operation, add(values)), wrong })))
  )

  return {
    operations,
    /** Generates any valid request. */
    valid: fc.oneof(
      ...operations.map((operation) => validValues(operation).map((values) => assemble(operation, values)))
    ),
    /** Generates any request with one error. */
    invalid: fc.oneof(...broken),
    /** One request for each possible error. */
    boundaries: broken.flatMap((request) => fc.sample(request, { seed: 1, numRuns: 1 }))
  }
}
