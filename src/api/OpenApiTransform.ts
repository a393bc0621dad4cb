/** Adapts the OpenAPI documents that Effect derives from `HttpApi`s to SPEC.md and to tools. */
import { Predicate, Record as Records, Schema } from "effect"
import type { OpenApi } from "effect/http-api"

export type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

interface JsonSchema {
  readonly $ref?: string
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly default?: unknown
  readonly description?: string
  readonly enum?: ReadonlyArray<unknown>
  readonly examples?: ReadonlyArray<unknown>
  readonly properties?: Readonly<Record<string, JsonSchema>>
}

/**
 * The server URL is an OpenAPI variable, because SPEC §1 leaves the service's address open. Linters require an absolute
 * default, and swagger-parser rejects variables with a description.
 */
export const makeServer = (variable: string, url: string, description: string): OpenApi.OpenAPISpecServer => ({
  url: `{${variable}}`,
  description,
  variables: { [variable]: { default: url } }
})

// Effect writes header names in lower case. Capitalize them as in SPEC §8, so that no header is listed twice.
const capitalize = (name: string): string =>
  name === "etag" ? "ETag" : name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

// Postman ignores the schema's description and example, and the explorer of `/docs` its description. So move both to
// the parameter.
const completeParameter = ({ name, schema: described, ...rest }: OpenApi.OpenAPISpecParameter) => {
  const { description, examples, ...schema }: JsonSchema = described
  const value = examples?.[0] ?? schema.default ?? schema.enum?.[0]
  // Scalar sends each parameter that has an example, unless the example has `x-disabled`.
  const isSent = rest.required || schema.default !== undefined
  return {
    name: rest.in === "header" ? capitalize(name) : name,
    ...rest,
    schema,
    ...description !== undefined && { description },
    ...value !== undefined && (isSent ? { example: value } : { examples: { example: { value, "x-disabled": true } } })
  }
}

const valueOf = ({ enum: values, examples = values }: JsonSchema): unknown => examples?.[0]

/**
 * Removes `additionalProperties: false`, which Effect adds, from schemas and those within them: a later version can add
 * fields to responses. Request schemas lose it too.
 */
const allowFurtherFields = (schema: unknown): void => {
  if (!Predicate.isObjectOrArray(schema)) return
  if (Reflect.get(schema, "additionalProperties") === false) Reflect.deleteProperty(schema, "additionalProperties")
  for (const part of Object.values(schema)) allowFurtherFields(part)
}

const isError = Schema.is(Schema.Struct({ code: Schema.String }))

/** Adapts a document to SPEC.md and tools. Removes `basePath` from the paths: the server URLs end with it (SPEC §1). */
export const makeTransform = ({ basePath, headersOf, securitySchemes }: {
  readonly basePath: string
  readonly securitySchemes: OpenApi.OpenAPIComponents["securitySchemes"]
  readonly headersOf: (status: string, operation: OpenApi.OpenAPISpecOperation) => Headers
}) =>
({ components, info, paths, ...rest }: Parameters<OpenApi.Transform["Service"]>[0]) => {
  const derived: Pick<OpenApi.OpenAPISpec, "components" | "info" | "paths"> = { components, info, paths }
  const security = Object.keys(securitySchemes).map((name) => ({ [name]: [] }))
  const { schemas } = derived.components
  allowFurtherFields(schemas)
  const headers: Record<string, OpenApi.OpenAPISpecHeader> = {}

  const resolve = (schema: JsonSchema): JsonSchema => schemas[schema.$ref?.split("/").at(-1) ?? ""] ?? schema

  const exampleOf = (schema: JsonSchema): unknown => {
    const fields = Records.map(resolve(schema).properties ?? {}, (field) => valueOf(resolve(field)))
    return Records.filter(fields, Predicate.isNotUndefined)
  }

  const completeContent = (content: OpenApi.OpenApiSpecContent = {}, isRequest = false): void => {
    for (const body of Object.values(content)) {
      const declared: JsonSchema = body.schema
      // `exactJson` and `errorResponse` wrap a named schema in `allOf`. Refer to the named schema directly (SPEC §4).
      const { allOf: [schema] = [declared] } = declared
      // Without an example, Postman invents a request body. Prism (a mock) and Scalar show the examples of errors.
      const values = declared.examples ?? (isRequest && schema ? [exampleOf(schema)] : [])
      const examples = Object.fromEntries(values.map((value) => [isError(value) ? value.code : "example", { value }]))
      Object.assign(body, { schema, ...values.length > 0 && { examples } })
    }
  }

  const operations = Object.values(derived.paths).flatMap((item) => [item.get, item.post, item.patch, item.delete])
  for (const operation of operations.filter(Predicate.isNotUndefined)) {
    // Add the security requirement (SPEC §5) here, because `Auth` has no `security` option (OperationMiddleware.ts).
    operation.security = security
    operation.parameters = operation.parameters.map(completeParameter)
    completeContent(operation.requestBody?.content, true)
    for (const [status, response] of Object.entries(operation.responses)) {
      completeContent(response.content)
      const shared = headersOf(status, operation)
      Object.assign(headers, shared)
      const references = Records.map(shared, (_, name) => ({ $ref: `#/components/headers/${name}` }))
      const own = Records.map(
        response.headers ?? {},
        // The contract declares `Location` as optional only for clients: the service always sends it.
        (header, name) => name === "location" ? { ...header, required: true } : header
      )
      // Use `Object.assign`, because Effect's type for response headers does not allow `$ref`.
      Object.assign(response, { headers: { ...Records.mapKeys(own, capitalize), ...references } })
    }
  }
  return {
    ...rest,
    // Redocly's linter requires a license, and Spectral's a contact.
    info: {
      ...derived.info,
      version: "1.0.0",
      contact: { name: "The operator of the service" },
      license: { name: "MIT", url: "https://opensource.org/license/mit" }
    },
    security,
    paths: Records.mapKeys(derived.paths, (path) => path.slice(basePath.length)),
    components: { schemas, headers, securitySchemes }
  }
}
