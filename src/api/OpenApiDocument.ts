/** The OpenAPI 3.1 document of {@link PetstoreApi}, as `/openapi.json` serves it. */
import { Predicate } from "effect"
import { OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { getPetHeaders } from "./Pets.ts"
import { PetstoreApi } from "./PetstoreApi.ts"

type Schema = OpenApi.OpenApiSpecMediaType["schema"]

const basePath = "/v1"

/** Schemas say these of what JSON or a URL holds where that differs from the TypeScript type (see Int64.ts). */
const documentedKeys = new Set(["type", "minimum", "maximum", "pattern"])

type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

const header = (
  description: string,
  example: string | number,
  /** What the value must match, if it is not always the example. */
  pattern?: RegExp
): OpenApi.OpenAPISpecHeader => ({
  description,
  required: true,
  schema: typeof example === "number"
    ? { type: "integer", examples: [example] }
    : pattern === undefined
    ? { type: "string", const: example }
    : { type: "string", pattern: pattern.source, examples: [example] }
})

/** On every answer. */
const headers: Headers = {
  "X-RateLimit-Limit": header("The limit that applies to the caller.", 60),
  "X-RateLimit-Remaining": header("Requests remaining.", 59),
  "X-RateLimit-Reset": header("Unix timestamp at which the limit resets.", 1_795_240_800),
  "RateLimit-Policy": header(
    "All limits of the caller.",
    `"minute";q=60;w=60, "day";q=1000;w=86400`,
    /^"minute";q=\d+;w=60, "day";q=\d+;w=86400$/
  ),
  "RateLimit": header(
    "What remains of each, and for how many seconds.",
    `"minute";r=59;t=60, "day";r=999;t=86400`,
    /^"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/
  ),
  "X-Request-Id": header(
    "The request's own, if it is short and plain, else a new one.",
    "01a1fd7a-b6a8-77a5-8e19-8b5b27105fa0",
    /^[\w.:-]{1,64}$/
  ),
  "Cache-Control": header("An answer is for its caller.", "no-store"),
  "X-Content-Type-Options": header("The type is what it says.", "nosniff"),
  "Content-Security-Policy": header("Nothing in an answer is to be run.", "default-src 'none'; frame-ancestors 'none'")
}

const retryAfter = header("Seconds to wait before the next request.", 12)

/** On the answers of some statuses. */
const headersOfStatus: Readonly<Record<string, Headers>> = {
  "401": { "WWW-Authenticate": header("How to authenticate.", "Bearer") },
  "429": { "Retry-After": retryAfter },
  "503": { "Retry-After": retryAfter }
}

/** Statuses of what is mostly refused before it is known which operation it asks for. */
const ofNoOperation = new Set(["408", "431"])

/** On the answers of deprecated operations. */
const headersOfDeprecated: Headers = {
  "Deprecation": header("Since when the operation is deprecated (RFC 9745).", getPetHeaders.deprecation),
  "Sunset": header("When the operation goes (RFC 8594).", getPetHeaders.sunset),
  "Link": header("What comes in its place.", getPetHeaders.link)
}

const headersOfOperation: Readonly<Record<string, Headers>> = {
  "listPets 200": {
    "Link": {
      ...header(
        "The next page, if there is one (RFC 8288).",
        `</v1/pets?cursor=Nw>; rel="next"`,
        /^<\/v1\/pets\?[^>]*cursor=[\w-]+>; rel="next"$/
      ),
      required: false
    }
  },
  "createPet 201": { "Location": header("Where the animal is.", "/v1/pets/7", /^\/v1\/pets\/-?\d+$/) }
}

const describe = (derived: OpenApi.OpenAPISpec): OpenApi.OpenAPISpec => {
  const schemas: Record<string, Schema> = {}
  for (const [name, { additionalProperties: _, ...schema }] of Object.entries(derived.components.schemas)) {
    // A body that travels as text is described by what the text holds.
    if (!("contentSchema" in schema)) schemas[name] = schema
  }

  /** The reference that a text schema holds, or that a union repeats. */
  const reference = ({ $ref, anyOf, contentSchema }: Schema): Schema => ({
    $ref: Predicate.hasProperty(contentSchema, "$ref")
      ? contentSchema.$ref
      : Array.isArray(anyOf)
      ? anyOf[0].$ref
      : $ref
  })

  const describeContent = (content: OpenApi.OpenApiSpecContent | undefined): void => {
    for (const body of Object.values(content ?? {})) body.schema = reference(body.schema)
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
        response.headers = {
          ...headers,
          ...headersOfStatus[status],
          ...operation?.deprecated && !ofNoOperation.has(status) && headersOfDeprecated,
          ...headersOfOperation[`${operation?.operationId} ${status}`]
        }
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
