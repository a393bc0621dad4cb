/** Makes the OpenAPI 3.1 document of {@link PetstoreApi}, which the service returns at `/openapi.json`. */
import { Predicate } from "effect"
import { OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { getPetHeaders } from "./Pets.ts"
import { PetstoreApi } from "./PetstoreApi.ts"

type Schema = OpenApi.OpenApiSpecMediaType["schema"]

const basePath = "/v1"

/**
 * The schema annotations that Effect copies into the document.
 *
 * They describe a value in JSON or in a URL where it differs from the value in TypeScript (see Int64.ts).
 */
const documentedAnnotations = new Set(["type", "minimum", "maximum", "pattern"])

type Headers = Readonly<Record<string, OpenApi.OpenAPISpecHeader>>

/** Makes the description of a required response header. The example determines the type of its schema. */
const makeHeader = (
  description: string,
  example: string | number,
  /** The pattern of a text. Without a pattern, the text is always equal to the example. */
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

/** The headers of every response. */
const commonHeaders: Headers = {
  "X-RateLimit-Limit": makeHeader("The limit that applies to the caller.", 60),
  "X-RateLimit-Remaining": makeHeader("Requests remaining.", 59),
  "X-RateLimit-Reset": makeHeader("Unix timestamp at which the limit resets.", 1_795_240_800),
  "RateLimit-Policy": makeHeader(
    "All limits of the caller.",
    `"minute";q=60;w=60, "day";q=1000;w=86400`,
    /^"minute";q=\d+;w=60, "day";q=\d+;w=86400$/
  ),
  "RateLimit": makeHeader(
    "What remains of each, and for how many seconds.",
    `"minute";r=59;t=60, "day";r=999;t=86400`,
    /^"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/
  ),
  "X-Request-Id": makeHeader(
    "The request's own, if it is short and plain, else a new one.",
    "01a1fd7a-b6a8-77a5-8e19-8b5b27105fa0",
    /^[\w.:-]{1,64}$/
  ),
  "Cache-Control": makeHeader("An answer is for its caller.", "no-store"),
  "X-Content-Type-Options": makeHeader("The type is what it says.", "nosniff"),
  "Content-Security-Policy": makeHeader(
    "Nothing in an answer is to be run.",
    "default-src 'none'; frame-ancestors 'none'"
  )
}

const retryAfter = makeHeader("Seconds to wait before the next request.", 12)

/** The additional headers of responses with certain statuses. */
const statusHeaders: Readonly<Record<string, Headers>> = {
  "401": { "WWW-Authenticate": makeHeader("How to authenticate.", "Bearer") },
  "429": { "Retry-After": retryAfter },
  "503": { "Retry-After": retryAfter }
}

/**
 * The statuses of requests that the service mostly rejects before it knows their operation.
 *
 * Their responses therefore do not have the headers of deprecated operations.
 */
const statusesBeforeRouting = new Set(["408", "431"])

/** The additional headers of responses of deprecated operations. */
const deprecationHeaders: Headers = {
  "Deprecation": makeHeader("Since when the operation is deprecated (RFC 9745).", getPetHeaders.deprecation),
  "Sunset": makeHeader("When the operation goes (RFC 8594).", getPetHeaders.sunset),
  "Link": makeHeader("What comes in its place.", getPetHeaders.link)
}

/** The additional headers of one operation with one status, by `operationId status`. */
const operationHeaders: Readonly<Record<string, Headers>> = {
  "listPets 200": {
    "Link": {
      ...makeHeader(
        "The next page, if there is one (RFC 8288).",
        `</v1/pets?cursor=Nw>; rel="next"`,
        /^<\/v1\/pets\?[^>]*cursor=[\w-]+>; rel="next"$/
      ),
      required: false
    }
  },
  "createPet 201": { "Location": makeHeader("Where the animal is.", "/v1/pets/7", /^\/v1\/pets\/-?\d+$/) }
}

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
        response.headers = {
          ...commonHeaders,
          ...statusHeaders[status],
          ...operation?.deprecated && !statusesBeforeRouting.has(status) && deprecationHeaders,
          ...operationHeaders[`${operation?.operationId} ${status}`]
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
