/** Declares the middleware that validates requests. */
import { HttpApiMiddleware } from "effect/http-api"
import * as Errors from "./Errors.ts"

/**
 * Returns 400 for a request that does not decode, and 413 for a body of more than 64 KiB.
 *
 * It returns 415 for a body that is not JSON, and 417 for an `Expect` header other than `100-continue`.
 */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [
    Errors.errorResponse(Errors.InvalidRequest),
    Errors.errorResponse(Errors.PayloadTooLarge),
    Errors.errorResponse(Errors.UnsupportedMediaType),
    Errors.errorResponse(Errors.ExpectationFailed)
  ]
}) {}
