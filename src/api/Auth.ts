/** Who calls: an API key, sent as a bearer token (SPEC §5, RFC 6750). */
import { Context } from "effect"
import { HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import * as Errors from "./Errors.ts"
import type { Limits, Plan } from "./Plans.ts"

/** The key of the request in progress. Says nothing of the secret. */
export class CurrentKey extends Context.Service<CurrentKey, {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/** Refuses whoever has no valid key, before anything else of the request is looked at. */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  security: { bearerAuth: HttpApiSecurity.bearer },
  error: [Errors.errorResponse(Errors.MissingApiKey), Errors.errorResponse(Errors.InvalidApiKey)]
}) {}
