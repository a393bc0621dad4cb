/** The published limits (SPEC §8) and the middleware that keeps them. */
import { HttpApiMiddleware } from "effect/http-api"
import type { CurrentKey } from "./Auth.ts"
import * as Errors from "./Errors.ts"

export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: [Errors.errorResponse(Errors.RateLimitExceeded), Errors.errorResponse(Errors.ApiKeyBanned)] }
) {}
