/** Makes the OpenAPI 3.1 document of {@link PetstoreApi}, which the service returns at `/openapi.json`. */
import { OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { complete, contactAndLicense, derivation } from "./OpenApiCompletion.ts"
import { PetstoreApi } from "./PetstoreApi.ts"
import { headersOf } from "./ResponseHeaders.ts"

const basePath = "/v1"

/**
 * Makes the description of a deployment, whose address is a variable because SPEC §1 does not state it.
 *
 * The default is absolute: Postman sends requests to it, and linters reject a relative one.
 */
const makeServer = (variable: string, description: string): OpenApi.OpenAPISpecServer => ({
  url: `{${variable}}`,
  description,
  variables: {
    [variable]: {
      default: `http://localhost:8080${basePath}`,
      description: `Address of the deployment, ends in ${basePath}. The default is a service on your own machine.`
    }
  }
})

const rex = { id: 1, name: "Rex", categoryId: 3, status: "available" }

/** The OpenAPI 3.1 document of the API under `/v1`. */
export const openApiDocument: OpenApi.OpenAPISpec = complete(OpenApi.fromApi(PetstoreApi, derivation), {
  basePath,
  info: {
    title: "Petstore",
    version: "1.0.0",
    description: "The pets of a store, as JSON over HTTP.",
    ...contactAndLicense
  },
  servers: [
    makeServer("base_url", "Production"),
    makeServer("staging_base_url", "Staging"),
    { url: basePath, description: "The deployment that returned this document" }
  ],
  securityScheme: { name: "bearerAuth", description: "An API key: `psk_` and 38 letters and digits." },
  headersOf: ({ deprecated, operationId }, status) => headersOf(operationId, status, deprecated === true),
  errors: Errors.examples,
  parameters: {
    petId: { example: 1 },
    status: { description: "Filters by availability status. Without it, the page has pets of each status." },
    "Idempotency-Key": {
      description: "Identifies this create, such as a new UUID. A retry with the same key and body within 24 hours " +
        "returns the first response. Postman replaces `{{$guid}}` by a new UUID in each request.",
      example: "{{$guid}}"
    }
  },
  requests: { createPet: { name: "Rex", categoryId: 3, status: "available" } },
  responses: {
    listPets: { description: "The pets of the page, by ascending id.", example: [rex] },
    createPet: { description: "The created pet, with its id.", example: rex },
    getPet: { description: "The pet.", example: rex }
  }
})
