import { HttpApiMiddleware } from "effect/http-api"
import * as Errors from "./Errors.ts"

/** Answers 400 to what does not decode, 413 to a body too large, and 415 to one that is not JSON. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [
    Errors.response(Errors.InvalidRequest),
    Errors.response(Errors.PayloadTooLarge),
    Errors.response(Errors.UnsupportedMediaType)
  ]
}) {}
