/** Completes an OpenAPI document that Effect derives from a contract: bodies, parameters, headers and examples. */
import { Predicate } from "effect"
import type { OpenApi } from "effect/http-api"
import type { ErrorBody } from "./Errors.ts"

type Schema = OpenApi.OpenApiSpecMediaType["schema"]
type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>
type Operation = OpenApi.OpenAPISpecOperation

/** The facts that the contract lacks, and the prefix `basePath` that the paths of the document leave out. */
export interface Completion {
  readonly info: OpenApi.OpenAPISpecInfo
  readonly servers: Array<OpenApi.OpenAPISpecServer>
  readonly basePath: string
  readonly securityScheme: { readonly name: string; readonly description: string }
  /** Returns the headers of the responses of an operation with a status. */
  readonly headersOf: (operation: Operation, status: string) => Headers
  /** One example of each error, which the responses with its status have. */
  readonly errors: ReadonlyArray<ErrorBody>
  /** Parameters by name. A parameter without an example has its default as the example. */
  readonly parameters: Readonly<Record<string, ParameterFacts>>
  /** Real examples of request bodies, by operation. */
  readonly requests: Readonly<Record<string, object>>
  /** The responses of success, by operation, with an example of the body if there is one. */
  readonly responses: Readonly<Record<string, { readonly description: string; readonly example?: object }>>
}

/** A real example of a parameter, and a description that replaces that of its schema. */
interface ParameterFacts {
  readonly example?: string | number
  readonly description?: string
}

/**
 * The schema annotations that Effect copies into a document.
 *
 * They describe a value in JSON or in a URL where it differs from the value in TypeScript (see Int64.ts).
 */
const documentedAnnotations = new Set(["type", "minimum", "maximum", "pattern"])

/** The options with which a contract's document is derived. */
export const derivation = { includeAnnotationKey: (key: string) => documentedAnnotations.has(key) }

/** Further fields of `info`. Effect's type of `info` has no contact. */
export const contactAndLicense = {
  contact: { name: "The operator of the service" },
  license: { name: "MIT", url: "https://opensource.org/license/mit" }
}

/** Returns the schema of a body: the one to which `exactJson` refers, or the first member of a union. */
const bodySchema = (schema: Schema): Schema => {
  const [first] = Array.isArray(schema.allOf) ? schema.allOf : Array.isArray(schema.anyOf) ? schema.anyOf : []
  return first ?? schema
}

const operationsOf = (item: OpenApi.OpenAPISpecPathItem): ReadonlyArray<Operation> =>
  [item.get, item.post, item.patch, item.delete].filter((operation) => operation !== undefined)

/** Moves the headers that several responses share to the components, and returns these. */
const shareHeaders = (operations: ReadonlyArray<Operation>): Headers => {
  const responses = operations.flatMap((operation) => Object.values(operation.responses))
  const uses = new Map<OpenApi.OpenAPISpecHeader, number>()
  for (const { headers } of responses) {
    for (const header of Object.values(headers ?? {})) uses.set(header, (uses.get(header) ?? 0) + 1)
  }
  const shared: Record<string, OpenApi.OpenAPISpecHeader> = {}
  for (const response of responses) {
    const headers = Object.entries(response.headers ?? {}).map(([name, header]) => {
      if (uses.get(header) === 1) return [name, header]
      shared[name] ??= header
      return [name, shared[name] === header ? { $ref: `#/components/headers/${name}` } : header]
    })
    // Effect's type of a header has no references.
    Object.assign(response, { headers: Object.fromEntries(headers) })
  }
  return shared
}

/** Names the schema of a body, and adds an example. */
const completeContent = (content: OpenApi.OpenApiSpecContent | undefined, example: object | undefined): void => {
  for (const body of Object.values(content ?? {})) {
    body.schema = bodySchema(body.schema)
    if (example !== undefined) Object.assign(body, { examples: { example: { value: example } } })
  }
}

/** Completes the document that `OpenApi.fromApi` returns with the options of `derivation`. It changes `derived`. */
export const complete = (derived: OpenApi.OpenAPISpec, completion: Completion): OpenApi.OpenAPISpec => {
  const { basePath, errors, headersOf, info, parameters, requests, responses, securityScheme, servers } = completion
  const schemas: Record<string, Schema> = {}
  for (const [name, { additionalProperties: _, ...schema }] of Object.entries(derived.components.schemas)) {
    schemas[name] = schema
  }

  /** Returns the description of a schema, or of the schema to which it refers. */
  const describe = (schema: object): string | undefined => {
    const name = Predicate.hasProperty(schema, "$ref") ? String(schema.$ref).split("/").at(-1) : undefined
    const described = name === undefined ? schema : schemas[name]
    return Predicate.hasProperty(described, "description") ? String(described.description) : undefined
  }

  const completeOperation = (operation: Operation): void => {
    for (const parameter of operation.parameters) {
      if (parameter.in === "header") parameter.name = toFieldName(parameter.name)
      // Tools show the description of a parameter, and not always that of its schema.
      const facts = parameters[parameter.name]
      const description = facts?.description ?? describe(parameter.schema)
      if (description !== undefined) parameter.description = description
      const { description: _, ...schema }: { readonly description?: unknown } = parameter.schema
      parameter.schema = schema
      const byDefault = Predicate.hasProperty(schema, "default") ? schema.default : undefined
      const example = facts?.example ?? byDefault
      if (example !== undefined) Object.assign(parameter, { example })
    }
    completeContent(operation.requestBody?.content, requests[operation.operationId])
    for (const [status, response] of Object.entries(operation.responses)) {
      const success = Number(status) < 300 ? responses[operation.operationId] : undefined
      completeContent(response.content, success?.example)
      response.description = success?.description ?? response.description.replaceAll(/\.? \| /g, ", or: ")
      response.headers = headersOf(operation, status)
      const errorsOfStatus = errors.filter((error) => String(error.status) === status)
      if (errorsOfStatus.length > 0) {
        const body = {
          schema: { $ref: "#/components/schemas/Error" },
          examples: Object.fromEntries(errorsOfStatus.map((value) => [value.code, { value }]))
        }
        response.content = { "application/json": body }
      }
    }
    operation.security = [{ [securityScheme.name]: [] }]
  }

  const paths: OpenApi.OpenAPISpecPaths = {}
  const operations: Array<Operation> = []
  for (const [path, item] of Object.entries(derived.paths)) {
    paths[path.slice(basePath.length)] = item
    operations.push(...operationsOf(item))
  }
  for (const operation of operations) completeOperation(operation)
  const headers = shareHeaders(operations)
  const components = {
    schemas,
    headers,
    securitySchemes: {
      [securityScheme.name]: { type: "http", scheme: "bearer", description: securityScheme.description } as const
    }
  }
  return { ...derived, info, servers, security: [{ [securityScheme.name]: [] }], paths, components }
}

/** Returns the usual form of a header's name: `idempotency-key` becomes `Idempotency-Key`. */
const toFieldName = (name: string): string => name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())
