/** Declares the API of the management port, which is for operators and never for clients of `/v1`. */
import { HttpApi, HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { AuditGroup } from "./Audit.ts"
import * as Errors from "./Errors.ts"
import { KeysGroup } from "./KeysGroup.ts"
import { makeTransform } from "./OpenApiTransform.ts"
import { Validation } from "./OperationMiddleware.ts"
import { adminHeadersOf } from "./ResponseHeaders.ts"

const adminToken = HttpApiSecurity.annotate(HttpApiSecurity.bearer, OpenApi.Description, "The admin token.")

/** Returns 401 for a request without an operator's token (`ADMIN_TOKEN`, `ADMIN_TOKENS`) as a bearer token. */
export class AdminAuth extends HttpApiMiddleware.Service<AdminAuth>()("petstore/api/AdminAuth", {
  requiredForClient: true,
  security: { adminToken },
  error: [
    Errors.errorResponse(Errors.MissingAdminToken, Errors.InvalidAdminToken),
    Errors.errorResponse(Errors.ReadOnlyToken),
    Errors.errorResponse(Errors.MisdirectedRequest),
    Errors.errorResponse(Errors.TooManyAttempts),
    ...Errors.commonErrors
  ]
}) {}

const introduction = `The API of operators, on the management port. Clients of \`/v1\` have no access to it.

Each request carries an admin token as a bearer token: \`ADMIN_TOKEN\` (or the file \`admin-token\` of \`DATA_DIR\`), or
one of \`ADMIN_TOKENS\`.

Every error has the body \`{"code","message","status"}\`. An unknown field or query parameter is an error.`

/** The API under `/admin`. Middleware runs from the last to the first: the admin token, then the validation. */
export class AdminApi extends HttpApi.make("petstore-admin")
  .add(AuditGroup.middleware(Validation).middleware(AdminAuth))
  .add(KeysGroup.middleware(Validation).middleware(AdminAuth))
  .prefix("/admin")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  // Unknown fields and parameters are rejected: with a misspelled `expiresAt`, a key would never expire.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({
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
    }],
    transform: makeTransform({
      basePath: "",
      securityScheme: { name: "adminToken", scheme: AdminAuth.security.adminToken },
      headersOf: adminHeadersOf
    })
  }))
{}
