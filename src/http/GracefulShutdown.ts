/**
 * Graceful shutdown: for `DRAIN_SECONDS` the process is not ready and closes each connection after its response, so
 * that balancers send requests elsewhere. Then it takes no new connections.
 */
import { Context, Duration, Effect, Layer } from "effect"

/** Whether the shutdown has begun. Each running service has its own instance. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, { begun: boolean }>()("petstore/http/GracefulShutdown")
{
  static readonly layer = Layer.sync(GracefulShutdown, () => ({ begun: false }))

  /** Begins the shutdown of the layers that it is provided to, and waits for some seconds before they close. */
  static readonly drain = (seconds: number) =>
    Effect.flatMap(GracefulShutdown, (shutdown) =>
      Effect.addFinalizer(() => {
        shutdown.begun = true
        return Effect.sleep(Duration.seconds(seconds))
      }))
}
