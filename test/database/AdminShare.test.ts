import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { AdminShare, makeDeadline } from "../../src/database/AdminShare.ts"

it.effect.each([[2, 1], [7, 1], [8, 2], [10, 2]] as const)(
  "Of %i connections, statements of the admin API use %i at once, and their deadline includes the wait for one",
  ([maxConnections, share]) =>
    Effect.gen(function*() {
      const withinDeadline = yield* makeDeadline(databaseErrors).pipe(
        Effect.provideServiceEffect(AdminShare, AdminShare.ofPool(maxConnections))
      )
      let running = 0
      const statement = Effect.gen(function*() {
        running++
        yield* Effect.sleep("2 seconds")
        running--
      })
      const calls = yield* Effect.forkChild(
        Effect.replicateEffect(Effect.result(withinDeadline(statement)), 3 * share, { concurrency: "unbounded" })
      )
      yield* TestClock.adjust("1 second")
      assert.strictEqual(running, share)
      yield* TestClock.adjust("1 minute")
      const results = yield* Fiber.join(calls)
      assert.lengthOf(results.filter(Result.isSuccess), share)
    })
)
