import { Context, Duration, Effect, Exit, FiberHandle, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import type { ServiceUnavailable } from "../api/Errors.ts"
import * as Outage from "./Outage.ts"

export class Readiness
  extends Context.Service<Readiness, Effect.Effect<unknown, ServiceUnavailable>>()("petstore/Readiness")
{
  static readonly layer = Layer.effect(
    Readiness,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const run = yield* Outage.makeRunner(Duration.seconds(1))
      return yield* make(run(sql`SELECT 1`))
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
