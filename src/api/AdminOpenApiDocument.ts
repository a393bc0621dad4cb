/** Makes the OpenAPI 3.1 document of {@link AdminApi}, which the management port returns at `/admin/openapi.json`. */
import { OpenApi } from "effect/http-api"
import { AdminApi, AdminAuth } from "./AdminApi.ts"
import { makeDocument } from "./OpenApiCompletion.ts"
import { adminHeadersOf } from "./ResponseHeaders.ts"

const introduction = `The API of operators, on the management port. Clients of \`/v1\` have no access to it.

Each request carries an admin token as a bearer token: \`ADMIN_TOKEN\` (or the file \`admin-token\` of \`DATA_DIR\`), or
one of \`ADMIN_TOKENS\`.

Every error has the body \`{"code","message","status"}\`. An unknown field or query parameter is an error.`

const api = AdminApi.annotateMerge(OpenApi.annotations({
  title: "Petstore management",
  description: introduction,
  servers: [{
    url: "{management_url}",
    description: "The management port",
    variables: {
      management_url: {
        default: "http://127.0.0.1:9090",
        description: "Address of the port. The default is that of a service on your own machine."
      }
    }
  }]
}))

/** The OpenAPI 3.1 document of the API under `/admin`. */
export const adminOpenApiDocument: OpenApi.OpenAPISpec = makeDocument(api, {
  basePath: "",
  securityScheme: { name: "adminToken", scheme: AdminAuth.security.adminToken },
  headersOf: adminHeadersOf
})
