/** The OpenAPI 3.1 document of {@link PetstoreApi}, as `/openapi.json` serves it. */
import { OpenApi } from "effect/http-api"
import { PetstoreApi } from "./PetstoreApi.ts"

type Schema = OpenApi.OpenApiSpecMediaType["schema"]

const basePath = "/v1"

/** Schemas say these of what JSON or a URL holds where that differs from the TypeScript type (see Int64.ts). */
const documentedKeys = new Set(["type", "minimum", "maximum"])

const rateLimitHeaders = {
  "X-RateLimit-Limit": "The limit that applies to the caller.",
  "X-RateLimit-Remaining": "Requests remaining.",
  "X-RateLimit-Reset": "Unix timestamp at which the limit resets."
}

const header = (description: string): OpenApi.OpenAPISpecHeader => ({
  description,
  required: true,
  schema: { type: "integer" }
})

const describe = (derived: OpenApi.OpenAPISpec): OpenApi.OpenAPISpec => {
  const schemas: Record<string, Schema> = {}
  for (const [name, { additionalProperties: _, ...schema }] of Object.entries(derived.components.schemas)) {
    // A body that travels as text is described by what the text holds.
    if (!("contentSchema" in schema)) schemas[name] = schema
  }

  /** The reference in place of a text schema that holds it (named after it), or of a union that repeats it. */
  const reference = ({ $ref, anyOf }: Schema): Schema => ({
    $ref: String(Array.isArray(anyOf) ? anyOf[0].$ref : $ref).replace(/Encoded$/, "")
  })

  const describeContent = (content: OpenApi.OpenApiSpecContent | undefined): void => {
    for (const body of Object.values(content ?? {})) body.schema = reference(body.schema)
  }

  const paths: OpenApi.OpenAPISpecPaths = {}
  for (const [path, item] of Object.entries(derived.paths)) {
    paths[path.slice(basePath.length)] = item
    for (const operation of [item.get, item.post]) {
      describeContent(operation?.requestBody?.content)
      for (const [status, response] of Object.entries(operation?.responses ?? {})) {
        describeContent(response.content)
        response.description = response.description.replaceAll(". | ", ", or: ")
        response.headers = {}
        for (const [name, description] of Object.entries(rateLimitHeaders)) {
          response.headers[name] = header(description)
        }
        if (status === "429") response.headers["Retry-After"] = header("Seconds to wait before the next request.")
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
      server("base_url", "Production"),
      server("staging_base_url", "Staging")
    ],
    security: [{ bearerAuth: [] }],
    paths,
    components: {
      schemas,
      securitySchemes: { bearerAuth: { type: "http", scheme: "bearer", description: "An API key." } }
    }
  }
}

/** SPEC §1 names the deployments, not their addresses: by default the one that served the document. */
const server = (variable: string, description: string): OpenApi.OpenAPISpecServer => ({
  url: `{${variable}}`,
  description,
  variables: { [variable]: { default: basePath, description: `Address of the deployment, ends in ${basePath}.` } }
})

export const openApiDocument: OpenApi.OpenAPISpec = describe(
  OpenApi.fromApi(PetstoreApi, { includeAnnotationKey: (key) => documentedKeys.has(key) })
)
