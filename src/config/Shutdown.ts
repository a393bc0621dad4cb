/**
 * Bounds the time of each part of a graceful shutdown: the service, then telemetry, then the log. Together they take
 * less than the ten seconds that `docker stop` waits by default before it kills the process.
 */
import { Config, Duration, Effect, Fiber, Layer, Scope } from "effect"
import { Settings } from "./Settings.ts"

export const maxServiceClose = Duration.millis(7_500)
export const maxTelemetryClose = Duration.seconds(1)
export const maxLogClose = Duration.seconds(1)

const maxLastWrites = Duration.seconds(1)

/** The part of `maxServiceClose` for requests in flight. Requests that take longer are interrupted. */
export const maxResponsesClose = Config.map(
  Settings.drainSeconds.config,
  (seconds) => Duration.subtract(maxServiceClose, Duration.sum(Duration.seconds(seconds), maxLastWrites))
)

/**
 * Waits at most `duration` for the finalizers of `layer`. If they take longer, runs `orElse` and stops waiting, so that
 * there is time left to close the layers that `layer` depends on.
 */
export const closeWithin =
  (duration: Duration.Duration, orElse: Effect.Effect<void> = Effect.void) => <A, E, R>(layer: Layer.Layer<A, E, R>) =>
    Layer.effectContext(Effect.gen(function*() {
      const scope = yield* Scope.make()
      yield* Effect.addFinalizer((exit) =>
        Effect.flatMap(
          Effect.forkDetach(Scope.close(scope, exit)),
          (closing) => Effect.timeoutOrElse(Fiber.join(closing), { duration, orElse: () => orElse })
        )
      )
      return yield* Layer.buildWithScope(layer, scope)
    }))
