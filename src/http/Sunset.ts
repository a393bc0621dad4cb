import { Clock, Effect, Layer } from "effect"
import { Gone } from "../api/Errors.ts"
import { Sunset } from "../api/OperationMiddleware.ts"
import { getPetSunset } from "../api/Pets.ts"

export const layer = Layer.succeed(Sunset, (httpEffect) =>
  Effect.andThen(
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      now < getPetSunset.getTime() ? Effect.void : Effect.fail(new Gone())),
    httpEffect
  ))
