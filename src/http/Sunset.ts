import { Clock, Context, Effect, Layer } from "effect"
import { Gone } from "../api/Errors.ts"
import { Deprecation, Sunset } from "../api/OperationMiddleware.ts"

export const layer = Layer.succeed(Sunset, (httpEffect, { endpoint }) => {
  const deprecation = Context.getOrUndefined(endpoint.annotations, Deprecation)
  if (deprecation === undefined) return httpEffect
  const { successor, sunset } = deprecation
  const check = Effect.flatMap(Clock.currentTimeMillis, (now) =>
    now < sunset.getTime()
      ? Effect.void
      : Effect.fail(new Gone({ message: `This operation was removed. Use GET ${successor}.` })))
  return Effect.andThen(check, httpEffect)
})
