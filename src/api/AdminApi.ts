/** The API of the management port: for the operator, never for clients of `/v1`. */
import { HttpApi, HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { KeysGroup } from "./Keys.ts"
import { Validation } from "./Validation.ts"

/** Lets in who has the operator's token (`ADMIN_TOKEN`). */
export class AdminAuth extends HttpApiMiddleware.Service<AdminAuth>()("petstore/api/AdminAuth", {
  requiredForClient: true,
  security: { adminToken: HttpApiSecurity.bearer },
  error: [
    Errors.errorResponse(Errors.MissingAdminToken),
    Errors.errorResponse(Errors.InvalidAdminToken),
    Errors.errorResponse(Errors.MisdirectedRequest),
    Errors.errorResponse(Errors.TooManyAttempts),
    ...Errors.commonErrors
  ]
}) {}

export class AdminApi extends HttpApi.make("petstore-admin")
  .add(KeysGroup.middleware(Validation).middleware(AdminAuth))
  .prefix("/admin")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  // A key that should expire must not live on for a misspelled name.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
{}
