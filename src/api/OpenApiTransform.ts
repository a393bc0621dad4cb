/** Adds examples, response headers and the security scheme to the OpenAPI documents that Effect derives. */
import { Context, Record as Records, Schema } from "effect"
import { type HttpApiSecurity, OpenApi } from "effect/http-api"

export type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

interface JsonSchema {
  readonly $ref?: string
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly default?: unknown
  readonly description?: string
  readonly enum?: ReadonlyArray<unknown>
  readonly examples?: ReadonlyArray<unknown>
  readonly items?: JsonSchema
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: ReadonlyArray<string>
}

const capitalizeWords = (name: string): string =>
  name === "etag" ? "ETag" : name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

const isError = Schema.is(Schema.Struct({ code: Schema.String }))

/** Unwraps the `allOf` of `exactJson`, `errorResponse` and annotated parameters, and the `anyOf` of nullable bodies. */
const unwrap = (schema: JsonSchema): JsonSchema => schema.allOf?.[0] ?? schema.anyOf?.[0] ?? schema

/**
 * Completes an OpenAPI document and removes `basePath` from its paths. If an endpoint declares a header that
 * `headersOf` also returns, the header from `headersOf` wins.
 */
export const makeTransform = ({ basePath, headersOf, securityScheme: { name: schemeName, scheme } }: {
  readonly basePath: string
  readonly securityScheme: { readonly name: string; readonly scheme: HttpApiSecurity.Http }
  readonly headersOf: (status: string, operation: OpenApi.OpenAPISpecOperation) => Headers
}) =>
({ components, info, paths, ...rest }: Parameters<OpenApi.Transform["Service"]>[0]) => {
  const derived: Pick<OpenApi.OpenAPISpec, "components" | "info" | "paths"> = { components, info, paths }
  const security = [{ [schemeName]: [] }]
  const schemas = Records.map(derived.components.schemas, ({ additionalProperties: _closed, ...schema }) => schema)

  const resolve = (schema: object): JsonSchema => {
    const { $ref }: JsonSchema = schema
    return $ref === undefined ? schema : schemas[$ref.split("/").at(-1) ?? ""] ?? schema
  }

  const exampleOf = (schema: JsonSchema): unknown => {
    const { enum: values, examples = values, items, properties, required = [] } = resolve(schema)
    if (properties === undefined) {
      const item = items && exampleOf(items)
      return item === undefined ? examples?.[0] : [item]
    }
    const fields = Object.entries(properties).map(([name, field]) => [name, exampleOf(field)] as const)
      .filter(([, example]) => example !== undefined)
    return required.every((name) => fields.some(([field]) => field === name)) ? Object.fromEntries(fields) : undefined
  }

  const completeContent = (content: OpenApi.OpenApiSpecContent = {}): void => {
    for (const body of Object.values(content)) {
      const declared: JsonSchema = body.schema
      const schema = unwrap(declared)
      const values = (declared.examples ?? [exampleOf(schema)]).filter((value) => value !== undefined)
      const examples = Object.fromEntries(values.map((value) => [isError(value) ? value.code : "example", { value }]))
      Object.assign(body, { schema, ...values.length > 0 && { examples } })
    }
  }

  // Moves description and example from the schema of a parameter to the parameter, where more tools show them.
  const completeParameter = (parameter: OpenApi.OpenAPISpecParameter): OpenApi.OpenAPISpecParameter => {
    const described: JsonSchema = parameter.schema
    const { description, examples, ...schema } = unwrap(described)
    const example = examples?.[0] ?? schema.default
    const [value] = resolve(schema).enum ?? []
    return {
      ...parameter,
      name: parameter.in === "header" ? capitalizeWords(parameter.name) : parameter.name,
      schema,
      description: described.allOf?.[1]?.description ?? description ?? resolve(schema).description ?? "",
      ...example !== undefined && { example },
      // Scalar (/docs) would send the first value of the enum by default, so mark the parameter as disabled.
      ...example === undefined && value !== undefined && { examples: { default: { value, "x-disabled": true } } }
    }
  }

  const headers: Record<string, OpenApi.OpenAPISpecHeader> = {}
  const completeOperation = (operation: OpenApi.OpenAPISpecOperation): void => {
    operation.security = security
    operation.parameters = operation.parameters.map(completeParameter)
    completeContent(operation.requestBody?.content)
    for (const [status, response] of Object.entries(operation.responses)) {
      completeContent(response.content)
      if (status === "204") response.description = "Done. The response has no body."
      const declared = Object.entries(response.headers ?? {}).map(([name, { required, schema: described }]) => {
        const { description, ...schema }: JsonSchema = described
        return [capitalizeWords(name), { description, required, schema }] as const
      })
      const shared = headersOf(status, operation)
      Object.assign(headers, shared)
      const references = Records.map(shared, (_, name) => ({ $ref: `#/components/headers/${name}` }))
      const ownHeaders = declared.filter(([name]) => !(name in shared))
      // Use `Object.assign`, because Effect's type for response headers does not allow `$ref`.
      Object.assign(response, { headers: { ...references, ...Object.fromEntries(ownHeaders) } })
    }
  }

  const relativePaths: OpenApi.OpenAPISpecPaths = {}
  for (const [path, item] of Object.entries(derived.paths)) {
    relativePaths[path.slice(basePath.length)] = item
    for (const operation of [item.get, item.post, item.patch, item.delete]) {
      if (operation === undefined) continue
      // Only a request body can cause 413 or 415, but `Validation` declares both for every operation.
      if (operation.requestBody === undefined) { for (const status of [413, 415]) delete operation.responses[status] }
      completeOperation(operation)
    }
  }
  const description = Context.getOrUndefined(scheme.annotations, OpenApi.Description)
  const documentedScheme = {
    type: "http",
    scheme: scheme.scheme.toLowerCase(),
    ...description !== undefined && { description }
  }
  return {
    ...rest,
    info: {
      ...derived.info,
      version: "1.0.0",
      contact: { name: "The operator of the service" },
      license: { name: "MIT", url: "https://opensource.org/license/mit" }
    },
    security,
    paths: relativePaths,
    components: { schemas, headers, securitySchemes: { [schemeName]: documentedScheme } }
  }
}
