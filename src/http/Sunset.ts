import { Clock, Context, Effect, Layer } from "effect"
import type { HttpServerResponse } from "effect/http"
import { Gone } from "../api/Errors.ts"
import { Deprecation, Sunset } from "../api/OperationMiddleware.ts"

/** Hot path: one `Effect.withFiber`, not `Effect.gen`. */
export const layer = Layer.succeed(Sunset, (httpEffect, { endpoint }) => {
  type Result = Effect.Effect<HttpServerResponse.HttpServerResponse, Gone | Effect.Error<typeof httpEffect>>
  const deprecation = Context.getOrUndefined(endpoint.annotations, Deprecation)
  if (deprecation === undefined) return httpEffect
  const { successor, sunset } = deprecation
  const removed = Effect.fail(new Gone({ message: `This operation was removed. Use GET ${successor}.` }))
  return Effect.withFiber((fiber): Result =>
    fiber.getRef(Clock.Clock).currentTimeMillisUnsafe() < sunset.getTime() ? httpEffect : removed
  )
})
