import { Context, Effect, Layer } from "effect"

/**
 * Receives the failures of background tasks that write or delete rows. It is a service, so that a program with such
 * tasks does not compile unless it provides a way to count their failures.
 */
export class BackgroundFailures extends Context.Service<BackgroundFailures, {
  /** Returns an effect that counts one failure of the task with this name. */
  makeCounter(task: string): Effect.Effect<Effect.Effect<void>>
  /** Runs when a last flush (`WriteBehind.ts`) cannot write all values, so that the process can exit with 1. */
  onLostValues(): void
}>()("database/BackgroundFailures") {
  /** For tests, and for stores in memory, whose writes do not fail. */
  static readonly layerIgnored = Layer.succeed(BackgroundFailures, {
    makeCounter: () => Effect.succeed(Effect.void),
    onLostValues() {}
  })
}
