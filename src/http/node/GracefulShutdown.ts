/**
 * The end of a process, announced: for a while before it takes no more connections it is not ready, and closes each
 * connection with its answer, so that balancers send their requests elsewhere and lose none.
 */
import { Config, Context, Duration, Effect, Layer } from "effect"
import { wholeNumber } from "../../config/Settings.ts"

/** Whether the shutdown of a process has begun. Each service that runs has one of its own. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, { begun: boolean }>()("petstore/http/Draining")
{
  static readonly layer = Layer.sync(GracefulShutdown, () => ({ begun: false }))
}

/** `DRAIN_SECONDS`. */
export const drainSeconds = Config.withDefault(wholeNumber("DRAIN_SECONDS", 0, 5), 0)

/** How long requests under way may then take to come to their end. */
export const gracePeriod = Config.map(drainSeconds, (seconds) => Duration.seconds(7 - seconds))

/** Milliseconds after which the process ends in any case, whatever a database that does not answer is still to keep. */
const end = 9_500

/** Announces the end of what it is provided with, and waits for `DRAIN_SECONDS` before it lets it come. */
export const drain = Layer.effectDiscard(Effect.gen(function*() {
  const draining = yield* GracefulShutdown
  const seconds = yield* drainSeconds
  yield* Effect.addFinalizer(() => {
    draining.begun = true
    setTimeout(() => process.exit(1), end).unref()
    return Effect.sleep(Duration.seconds(seconds))
  })
}))
