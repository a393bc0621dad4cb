/** Completes the OpenAPI document that Effect derives from a contract: whole examples, shared headers and the token. */
import { Context } from "effect"
import { type HttpApi, type HttpApiGroup, type HttpApiSecurity, OpenApi } from "effect/http-api"
import { bodyOf, type ErrorBody, errorClasses } from "./Errors.ts"

export type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

/** The facts that a contract lacks. */
export interface Completion {
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

/** Annotations of values that in JSON or in a URL differ from those in TypeScript (see Int64.ts). */
const derivation = { includeAnnotationKey: (key: string) => ["type", "minimum", "maximum", "pattern"].includes(key) }

/** Examples of messages that name the fault of one request. */
const exampleMessages: Readonly<Record<string, string>> = {
  invalid_request: "Invalid request: body.name: expected string; body.categoryId: required.",
  conflict: "Key key_4fTq9XbLw2ZkPn7R is revoked.",
  rate_limit_exceeded: "The limit of 60 requests a minute is used up. Retry in 12 seconds.",
  api_key_banned: "The API key is banned for requests after a 429. Retry in 60 seconds."
}

/** One example of the body of each error, with the default message of the error. */
const errorExamples = errorClasses.map((error) => {
  const body = bodyOf(new error())
  return { defaultMessage: body.message, body: { ...body, message: exampleMessages[body.code] ?? body.message } }
})

/** Returns the usual form of a header's name: `idempotency-key` becomes `Idempotency-Key`. */
const toFieldName = (name: string): string =>
  name === "etag" ? "ETag" : name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

/** Returns the schema that `exactJson` or an annotated field refers to, or the first member of a union. */
const unwrap = (schema: JsonSchema): JsonSchema => schema.allOf?.[0] ?? schema.anyOf?.[0] ?? schema

/** Derives the OpenAPI document of a contract, and completes it. */
export const makeDocument = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  { basePath, headersOf, securityScheme: { name: schemeName, scheme } }: Completion
): OpenApi.OpenAPISpec => {
  const derived = OpenApi.fromApi(api, derivation)
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

  const completeContent = (content: OpenApi.OpenApiSpecContent = {}, errors: ReadonlyArray<ErrorBody> = []): void => {
    for (const body of Object.values(content)) {
      const schema = unwrap(body.schema)
      const example = exampleOf(schema)
      const examples = errors.length > 0
        ? Object.fromEntries(errors.map((error) => [error.code, { value: error }]))
        : example !== undefined && { example: { value: example } }
      Object.assign(body, { schema, ...examples && { examples } })
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
      // The derived description of an error response has the default messages of its errors.
      const messages = response.description.split(" | ")
      const errors = errorExamples.filter(({ defaultMessage }) => messages.includes(defaultMessage))
      completeContent(response.content, errors.map(({ body }) => body))
      response.description = status === "204"
        ? "Done. The response has no body."
        : response.description.replaceAll(/\.? \| /g, ", or: ")
      const declared = Object.entries(response.headers ?? {}).map(([name, { required, schema: described }]) => {
        const { description, ...schema }: JsonSchema = described
        return [toFieldName(name), { description, required, schema }] as const
      })
      const shared = headersOf(status, operation)
      Object.assign(headers, shared)
      const references = Object.keys(shared).map((name) => [name, { $ref: `#/components/headers/${name}` }] as const)
      // Effect's type of a header has no references.
      Object.assign(response, { headers: Object.fromEntries([...references, ...declared]) })
    }
  }

  const paths: OpenApi.OpenAPISpecPaths = {}
  for (const [path, item] of Object.entries(derived.paths)) {
    paths[path.slice(basePath.length)] = item
    for (const operation of [item.get, item.post, item.patch, item.delete]) {
      if (operation !== undefined) completeOperation(operation)
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
  return { ...derived, info, security, paths, components }
}
