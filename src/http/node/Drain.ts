/**
 * Graceful shutdown: for `DRAIN_SECONDS` the process is not ready and closes each connection after its response, so
 * that balancers send requests elsewhere. Then it takes no new connections.
 */
import { Config, Duration, Effect, Layer } from "effect"
import * as Settings from "../../config/Settings.ts"
import { GracefulShutdown } from "../admission/GracefulShutdown.ts"

/** The maximum time for requests in flight after draining. */
export const gracePeriod = Config.map(Settings.drainSeconds.config, (seconds) => Duration.seconds(7 - seconds))

/** Milliseconds after which the process exits in any case, even if the database does not respond. */
const end = 9_500

/** Begins the shutdown of the layers that it is provided to, and waits for `DRAIN_SECONDS` before they close. */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const draining = yield* GracefulShutdown
  const seconds = yield* Settings.drainSeconds.config
  yield* Effect.addFinalizer(() => {
    draining.begun = true
    setTimeout(() => process.exit(1), end).unref()
    return Effect.sleep(Duration.seconds(seconds))
  })
}))
