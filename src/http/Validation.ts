import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { ExpectationFailed } from "../api/Errors.ts"
import { Validation } from "../api/OperationMiddleware.ts"
import { hasUnknownExpectation } from "./RequestHead.ts"

export const layer = Layer.effect(
  Validation,
  Effect.map(Validation, (decoded) =>
    Validation.of((httpEffect, options) => {
      const valid = decoded(httpEffect, options)
      return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
        hasUnknownExpectation(request) ? Effect.fail(new ExpectationFailed()) : valid)
    }))
).pipe(Layer.provide(Validation.layer))
