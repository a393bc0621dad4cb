/** Generates requests from an OpenAPI document, as Schemathesis does: valid requests, and requests with one error. */
import * as fc from "fast-check"

// oxlint-disable-next-line typescript/no-explicit-any -- the generator reads any JSON document, without types
export type Json = { readonly [key: string]: any }

export interface Request {
  readonly operationId: string
  readonly method: string
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  /** The error in the request, in words; `undefined` for a valid request. */
  readonly wrong: string | undefined
}

/** Writes a value as JSON, with all digits of each bigint. */
const write = (value: unknown): string =>
  JSON.stringify(value, (_, field: unknown) => typeof field === "bigint" ? JSON.rawJSON(String(field)) : field)

/** `JSON.parse` rounds the maximum of an int64 to 2^63. */
const boundsOf = ({ maximum, minimum }: Json) => ({
  min: BigInt(minimum),
  max: maximum === 2 ** 63 ? 2n ** 63n - 1n : BigInt(maximum)
})

/** Generates values that the schema allows, including those at its boundaries. */
const valid = (schema: Json): fc.Arbitrary<unknown> => {
  if (schema.enum) return fc.constantFrom(...schema.enum)
  if (schema.pattern && !schema.maxLength) return fc.stringMatching(new RegExp(schema.pattern))
  if (schema.type === "integer") {
    const { max, min } = boundsOf(schema)
    return fc.oneof(fc.constantFrom(min, max), fc.bigInt({ min, max }))
  }
  return fc.oneof(
    fc.constantFrom("", " ", "\u{10ffff}", "\ufeff", "null", "0", "\\", `"`, "\u{10ffff}".repeat(schema.maxLength)),
    fc.string({ unit: "binary", maxLength: 40 }).map((value) => value.replaceAll("\u0000", ""))
  )
}

/** Returns values that a field rejects, by their error. All values of parameters are texts. */
const invalid = ({ in: place, required, schema }: Json): Json => {
  const isText = place !== "body"
  const missing = required && !isText ? { missing: undefined } : {}
  // A path with an empty parameter is another path.
  const empty = place === "path" ? {} : { empty: "" }
  const others = { ...missing, ...isText ? empty : { null: null, array: [], object: {}, boolean: true } }
  if (schema.enum) {
    return { ...others, "no value of the enumeration": "lost", "another case": schema.enum[0].toUpperCase() }
  }
  if (schema.pattern && !schema.maxLength) return { ...others, "too long": "x".repeat(256), "a space": "a b" }
  if (schema.type === "integer") {
    const { max, min } = boundsOf(schema)
    const numbers = [String(min - 1n), String(max + 1n), "1.5", "1e400", "9".repeat(2000)]
    const invalidNumbers = numbers.map((number) => [number, isText ? number : JSON.rawJSON(number)])
    return { ...others, text: "one", digits: isText ? "1e1" : "1", ...Object.fromEntries(invalidNumbers) }
  }
  return { ...others, number: 1, "U+0000": "a\0b", surrogate: "\ud800", "too long": "x".repeat(schema.maxLength + 1) }
}

/** Makes generators of valid and invalid requests for all operations of an OpenAPI document. */
export const requestsOf = ({ components, paths, servers }: Json) => {
  const resolve = (schema: Json): Json => schema.$ref ? components.schemas[schema.$ref.split("/").at(-1)] : schema

  const operations = Object.entries<Json>(paths).flatMap(([path, item]) =>
    Object.entries<Json>(item).map(([method, { operationId, parameters, requestBody, responses }]) => {
      const bodySchema = requestBody && resolve(requestBody.content["application/json"].schema)
      const properties = Object.entries<Json>(bodySchema?.properties ?? {}).map(([name, schema]) => (
        { in: "body", name, schema, required: bodySchema.required?.includes(name) ?? false }
      ))
      const all: ReadonlyArray<Json> = [...parameters, ...properties]
      const fields = all.map((field): Json => ({ ...field, schema: resolve(field.schema) }))
      /** Makes a request of the values of its fields, or with another body. Fields that are `undefined` are absent. */
      const assemble = (values: Json, wrong?: string, body?: unknown): Request => {
        const fieldsIn = (place: string): Record<string, string> => {
          const present = fields.filter((field) => field.in === place && values[field.name] !== undefined)
          return Object.fromEntries(present.map(({ name }) => [name, values[name]]))
        }
        const query = new URLSearchParams(fieldsIn("query")).toString()
        const target = servers[0].url + path.replace(/\{(\w+)\}/, (_, name) => encodeURIComponent(values[name]))
        return {
          operationId,
          method: method.toUpperCase(),
          target: query === "" ? target : `${target}?${query}`,
          headers: { ...bodySchema && { "Content-Type": "application/json" }, ...fieldsIn("header") },
          body: bodySchema && write(body === undefined ? fieldsIn("body") : body),
          wrong
        }
      }
      // A cursor is opaque.
      const generated = fields.filter(({ name }) => name !== "cursor")
      const requiredKeys = generated.filter(({ required }) => required).map(({ name }): string => name)
      const arbitraries: Json = Object.fromEntries(generated.map(({ name, schema }) => [name, valid(schema)]))
      const hasEnough = (all: Json): boolean =>
        properties.filter(({ name }) => all[name] !== undefined).length >= (bodySchema?.minProperties ?? 0)
      const values = fc.record<Json>(arbitraries, { requiredKeys }).filter(hasEnough)
      const broken: Array<fc.Arbitrary<Request>> = fields.flatMap((field) =>
        Object.entries(invalid(field)).map(([wrong, value]) =>
          values.map((all) => assemble({ ...all, [field.name]: value }, `${field.name}: ${wrong}`))
        )
      )
      for (const body of bodySchema ? [null, [], "x", 1, ...bodySchema.minProperties > 0 ? [{}] : []] : []) {
        broken.push(values.map((all) => assemble(all, `body: ${JSON.stringify(body)}`, body)))
      }
      return { operationId, responses, valid: values.map((all) => assemble(all)), broken }
    })
  )
  const broken = operations.flatMap((operation) => operation.broken)
  return {
    responses: Object.fromEntries(operations.map(({ operationId, responses }) => [operationId, responses])),
    valid: fc.oneof(...operations.map((operation) => operation.valid)),
    invalid: fc.oneof(...broken),
    /** One request for each possible error. */
    boundaries: broken.flatMap((request) => fc.sample(request, { seed: 1, numRuns: 1 }))
  }
}
