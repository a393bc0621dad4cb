/** Declares the middleware that enforces the published rate limits (SPEC §8). */
import { HttpApiMiddleware } from "effect/http-api"
import type { CurrentKey } from "./Auth.ts"
import * as Errors from "./Errors.ts"

/** Returns 429 when the API key of the request exceeded one of its limits or is banned (SPEC §5.4, §8). */
export class RateLimit extends HttpApiMiddleware.Service<RateLimit, { requires: CurrentKey }>()(
  "petstore/api/RateLimit",
  { error: [Errors.errorResponse(Errors.RateLimitExceeded), Errors.errorResponse(Errors.ApiKeyBanned)] }
) {}
