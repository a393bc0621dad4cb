/** Declares the API of the management port, which is for operators and never for clients of `/v1`. */
import { HttpApi, HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
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

/** The API under `/admin`. Middleware runs from the last to the first: the admin token, then the validation. */
export class AdminApi extends HttpApi.make("petstore-admin")
  .add(AuditGroup.middleware(Validation).middleware(AdminAuth))
  .add(KeysGroup.middleware(Validation).middleware(AdminAuth))
  .prefix("/admin")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  // Unknown fields and parameters are rejected: with a misspelled `expiresAt`, a key would never expire.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
{}
