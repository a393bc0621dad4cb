/** The transformation of the derived OpenAPI documents: whole examples, shared headers and the security scheme. */
import { Context, Schema } from "effect"
import { type HttpApiSecurity, OpenApi } from "effect/http-api"

export type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

/** The parts of a document that its contract does not declare. */
export interface Documentation {
  /** The prefix that the paths of the document leave out. */
  readonly basePath: string
  readonly securityScheme: { readonly name: string; readonly scheme: HttpApiSecurity.Http }
  /** Returns the headers that all responses with a status have, beside those that the endpoint declares. */
  readonly headersOf: (status: string, operation: OpenApi.OpenAPISpecOperation) => Headers
}

/** The fields of a JSON Schema that this file reads. */
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

/** Returns the usual form of a header's name: `idempotency-key` becomes `Idempotency-Key`. */
const toFieldName = (name: string): string =>
  name === "etag" ? "ETag" : name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

/** Returns whether an example is the body of an error. */
const hasCode = Schema.is(Schema.Struct({ code: Schema.String }))

/** Returns the schema that `exactJson` or an annotated field refers to, or the first member of a union. */
const unwrap = (schema: JsonSchema): JsonSchema => schema.allOf?.[0] ?? schema.anyOf?.[0] ?? schema

/** Makes the annotation `transform` of a contract, with which `OpenApi.fromApi` makes the whole document. */
export const makeTransform = (documentation: Documentation) => ({ components, info, paths, ...rest }: Derived) => ({
  ...rest,
  ...complete({ components, info, paths }, documentation)
})

/** The derived document. The annotation of Effect has no type for it. */
type Derived = Parameters<OpenApi.Transform["Service"]>[0]

const complete = (
  derived: Pick<OpenApi.OpenAPISpec, "components" | "info" | "paths">,
  { basePath, headersOf, securityScheme: { name: schemeName, scheme } }: Documentation
) => {
  const security = [{ [schemeName]: [] }]
  const schemas: OpenApi.OpenAPISpec["components"]["schemas"] = {}
  for (const [name, { additionalProperties: _, ...schema }] of Object.entries(derived.components.schemas)) {
    schemas[name] = schema
  }

  const resolve = (schema: object): JsonSchema => {
    const { $ref }: JsonSchema = schema
    return $ref === undefined ? schema : schemas[$ref.split("/").at(-1) ?? ""] ?? schema
  }

  /** Returns the example of a schema, made of those of its fields. `undefined` if a required field has none. */
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
      const [example, ...others] = declared.examples ?? [exampleOf(schema)]
      const examples = example === undefined ? {} : Object.fromEntries(
        [example, ...others].map((value) => [hasCode(value) ? value.code : "example", { value }])
      )
      Object.assign(body, { schema, ...example !== undefined && { examples } })
    }
  }

  /** Moves the description and the example of a schema to its parameter, where more tools show them. */
  const completeParameter = (parameter: OpenApi.OpenAPISpecParameter): OpenApi.OpenAPISpecParameter => {
    const described: JsonSchema = parameter.schema
    const { description, examples, ...schema } = unwrap(described)
    const example = examples?.[0] ?? schema.default
    return {
      ...parameter,
      name: parameter.in === "header" ? toFieldName(parameter.name) : parameter.name,
      schema,
      // The description of an annotated field follows the schema to which it refers.
      description: described.allOf?.[1]?.description ?? description ?? resolve(schema).description ?? "",
      ...example !== undefined && { example }
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
        return [toFieldName(name), { description, required, schema }] as const
      })
      const shared = headersOf(status, operation)
      Object.assign(headers, shared)
      const references = Object.keys(shared).map((name) => [name, { $ref: `#/components/headers/${name}` }] as const)
      // Effect's type of a header has no references.
      Object.assign(response, {
        headers: {
          ...Object.fromEntries(references),
          ...Object.fromEntries(declared.filter(([name]) => !(name in shared)))
        }
      })
    }
  }

  const paths: OpenApi.OpenAPISpecPaths = {}
  for (const [path, item] of Object.entries(derived.paths)) {
    paths[path.slice(basePath.length)] = item
    for (const operation of [item.get, item.post, item.patch, item.delete]) {
      if (operation === undefined) continue
      // The middleware declares the errors of bodies for all operations.
      if (operation.requestBody === undefined) { for (const status of [413, 415]) delete operation.responses[status] }
      completeOperation(operation)
    }
  }
  const description = Context.getOrUndefined(scheme.annotations, OpenApi.Description)
  const securitySchemes = {
    [schemeName]: {
      type: "http",
      scheme: scheme.scheme.toLowerCase(),
      ...description !== undefined && { description }
    } as const
  }
  const info = {
    ...derived.info,
    version: "1.0.0",
    // Effect's type of `info` has no contact.
    contact: { name: "The operator of the service" },
    license: { name: "MIT", url: "https://opensource.org/license/mit" }
  }
  const components = { schemas, headers, securitySchemes }
  return { info, security, paths, components }
}
