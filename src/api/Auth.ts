/** Declares the authentication of callers by an API key, sent as a bearer token (SPEC §5, RFC 6750). */
import { Context } from "effect"
import { HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import * as Errors from "./Errors.ts"
import type { Limits, Plan } from "./Plans.ts"

/** The API key of the current request: its id, its plan and its limits, but not its secret. */
export class CurrentKey extends Context.Service<CurrentKey, {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
}>()("petstore/api/CurrentKey") {}

/**
 * The middleware that returns 401 for a request without a valid API key (SPEC §5.3).
 *
 * It runs before the rate limit and the validation, so the service examines nothing else of such a request.
 */
export class Auth extends HttpApiMiddleware.Service<Auth, { provides: CurrentKey }>()("petstore/api/Auth", {
  requiredForClient: true,
  error: [Errors.errorResponse(Errors.MissingApiKey), Errors.errorResponse(Errors.InvalidApiKey)]
}) {
  /**
   * The scheme of the credential. It is no `security` option, with which Effect would run a generator, copy the headers
   * and make a new `Redacted` for each request: 3 µs of the 16 of a list without its socket.
   */
  static readonly scheme = HttpApiSecurity.bearer
}
