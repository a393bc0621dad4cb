/** Declares the API of the management port, which is for operators and never for clients of `/v1`. */
import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { AuditGroup } from "./Audit.ts"
import * as Errors from "./Errors.ts"
import { KeysGroup } from "./KeysGroup.ts"
import { Validation } from "./OperationMiddleware.ts"

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

/** The admin token of a request, and the service that it operates. */
export const Session = Schema.Struct({
  operator: Schema.String.annotate({ description: "The name of the admin token.", examples: ["admin"] }),
  mayChange: Schema.Boolean.annotate({ description: "Whether the token may change keys, or only read." }),
  environment: Schema.NullOr(Schema.String).annotate({
    description: "The label of this installation (`ENVIRONMENT`).",
    examples: ["production"]
  })
}).annotate({ identifier: "Session", description: "The operator, and the environment of the service." })

class SessionGroup extends HttpApiGroup.make("session", { topLevel: true }).add(
  HttpApiEndpoint.get("showSession", "/session", { success: Session }).annotateMerge(OpenApi.annotations({
    summary: "Show the operator of the admin token",
    description: "Returns the name of the admin token, whether it may change keys, and the environment of the service."
  }))
).annotate(OpenApi.Description, "The admin token of the request.") {}

/** The API under `/admin`. Middleware runs from the last to the first: the admin token, then the validation. */
export class AdminApi extends HttpApi.make("petstore-admin")
  .add(AuditGroup.middleware(Validation).middleware(AdminAuth))
  .add(KeysGroup.middleware(Validation).middleware(AdminAuth))
  .add(SessionGroup.middleware(AdminAuth))
  .prefix("/admin")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  // Unknown fields and parameters are rejected: with a misspelled `expiresAt`, a key would never expire.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
{}
