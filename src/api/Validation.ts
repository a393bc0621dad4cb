import { HttpApiMiddleware } from "effect/http-api"
import * as Errors from "./Errors.ts"

/**
 * Answers 400 to what does not decode, 413 to a body too large, 415 to one that is not JSON, and 417 to other
 * expectations.
 */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [
    Errors.errorResponse(Errors.InvalidRequest),
    Errors.errorResponse(Errors.PayloadTooLarge),
    Errors.errorResponse(Errors.UnsupportedMediaType),
    Errors.errorResponse(Errors.ExpectationFailed)
  ]
}) {}
