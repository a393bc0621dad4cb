/** Makes the OpenAPI 3.1 document of {@link PetstoreApi}, which the service returns at `/openapi.json`. */
import { Predicate } from "effect"
import { OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { PetstoreApi } from "./PetstoreApi.ts"
import { headersOf } from "./ResponseHeaders.ts"

type Schema = OpenApi.OpenApiSpecMediaType["schema"]

const basePath = "/v1"

/**
 * The schema annotations that Effect copies into the document.
 *
 * They describe a value in JSON or in a URL where it differs from the value in TypeScript (see Int64.ts).
 */
const documentedAnnotations = new Set(["type", "minimum", "maximum", "pattern"])

/** Completes the document that Effect derives from the contract: paths, headers, examples, servers and security. */
const completeDocument = (derived: OpenApi.OpenAPISpec): OpenApi.OpenAPISpec => {
  const schemas: Record<string, Schema> = {}
  for (const [name, { additionalProperties: _, ...schema }] of Object.entries(derived.components.schemas)) {
    // The schema of a JSON text is left out: the schema of the value in the text describes the body.
    if (!("contentSchema" in schema)) schemas[name] = schema
  }

  /** Returns the reference to the schema of a body: of the value in a JSON text, or of the first member of a union. */
  const bodyReference = ({ $ref, anyOf, contentSchema }: Schema): Schema => ({
    $ref: Predicate.hasProperty(contentSchema, "$ref")
      ? contentSchema.$ref
      : Array.isArray(anyOf)
      ? anyOf[0].$ref
      : $ref
  })

  const describeContent = (content: OpenApi.OpenApiSpecContent | undefined): void => {
    for (const body of Object.values(content ?? {})) body.schema = bodyReference(body.schema)
  }

  const paths: OpenApi.OpenAPISpecPaths = {}
  for (const [path, item] of Object.entries(derived.paths)) {
    paths[path.slice(basePath.length)] = item
    for (const operation of [item.get, item.post]) {
      for (const parameter of operation?.parameters ?? []) {
        if (parameter.in === "header") {
          parameter.name = parameter.name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())
        }
      }
      describeContent(operation?.requestBody?.content)
      for (const [status, response] of Object.entries(operation?.responses ?? {})) {
        describeContent(response.content)
        response.description = response.description.replaceAll(". | ", ", or: ")
        response.headers = headersOf(operation?.operationId, status, operation?.deprecated === true)
        const examples = Errors.examples.filter((example) => String(example.status) === status)
        if (examples.length > 0) {
          const body = {
            schema: { $ref: "#/components/schemas/Error" },
            examples: Object.fromEntries(examples.map((value) => [value.code, { value }]))
          }
          response.content = { "application/json": body }
        }
      }
    }
  }

  return {
    ...derived,
    info: {
      title: "Petstore",
      version: "1.0.0",
      description: "The animals held in a pet store.",
      license: { name: "MIT", identifier: "MIT" }
    },
    servers: [
      makeServer("base_url", "Production"),
      makeServer("staging_base_url", "Staging")
    ],
    security: [{ bearerAuth: [] }],
    paths,
    components: {
      schemas,
      securitySchemes: { bearerAuth: { type: "http", scheme: "bearer", description: "An API key." } }
    }
  }
}

/**
 * Makes the description of a deployment, whose address is a variable because SPEC §1 does not state it.
 *
 * The default of the variable is the deployment that returned the document.
 */
const makeServer = (variable: string, description: string): OpenApi.OpenAPISpecServer => ({
  url: `{${variable}}`,
  description,
  variables: { [variable]: { default: basePath, description: `Address of the deployment, ends in ${basePath}.` } }
})

/** The OpenAPI 3.1 document of the API under `/v1`. */
export const openApiDocument: OpenApi.OpenAPISpec = completeDocument(
  OpenApi.fromApi(PetstoreApi, { includeAnnotationKey: (key) => documentedAnnotations.has(key) })
)
