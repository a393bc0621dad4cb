import { HttpApiMiddleware } from "effect/http-api"
import * as Errors from "./Errors.ts"

/** Answers 400 to what does not decode, and 415 to a body that is not JSON. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: [Errors.response(Errors.InvalidRequest), Errors.response(Errors.UnsupportedMediaType)]
}) {}
