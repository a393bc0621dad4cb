import { Context, Duration, Effect, Exit, FiberHandle, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import type { OutageErrors } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

/**
 * Succeeds if the database responds to a read within a second, or responded at most 100 ms ago. Otherwise fails with
 * one of the layer's `errors`.
 */
export class Readiness extends Context.Service<Readiness, Effect.Effect<unknown, unknown>>()("database/Readiness") {
  static readonly layer = <U>(errors: OutageErrors<U>) =>
    Layer.effect(
      Readiness,
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const withinDeadline = yield* Outage.makeRunner(errors, Duration.seconds(1))
        return yield* make(withinDeadline(sql`SELECT 1`))
      })
    )
}

export const make = Effect.fnUntraced(function*(ping: Readiness["Service"]) {
  const recovered = Effect.andThen(
    Effect.retry(ping, Schedule.spaced("1 second")),
    Effect.logInfo("The database responds again")
  )
  const runOnce = yield* FiberHandle.makeRuntime<never>()
  const checked = Effect.tapError(ping, () => Effect.sync(() => runOnce(recovered, { onlyIfMissing: true })))
  return yield* Effect.cachedWithTTL(checked, (exit) => Exit.isSuccess(exit) ? "100 millis" : 0)
})
