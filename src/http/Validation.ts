import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { ExpectationFailed, InvalidRequest } from "../api/Errors.ts"
import { Validation } from "../api/OperationMiddleware.ts"
import { hasUnknownExpectation, isRepeated } from "./RequestHead.ts"

type Rejected = Effect.Effect<never, ExpectationFailed | InvalidRequest>

const twoTypes = new InvalidRequest({
  message: "Invalid request: header.content-type: expected one Content-Type header."
})

/** Adds two checks to the contract's `Validation.layer`: no unknown `Expect`, and at most one `Content-Type` header. */
export const layer = Layer.effect(
  Validation,
  Effect.map(Validation, (validationOfContract) =>
    Validation.of((httpEffect, options) => {
      const valid = validationOfContract(httpEffect, options)
      return HttpServerRequest.HttpServerRequest.use((request): typeof valid | Rejected => {
        if (hasUnknownExpectation(request)) return Effect.fail(new ExpectationFailed())
        return isRepeated(request, "content-type") ? Effect.fail(twoTypes) : valid
      })
    }))
).pipe(Layer.provide(Validation.layer))
