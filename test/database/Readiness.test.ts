import { assert, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { Readiness } from "../../src/database/Readiness.ts"
import { silentDatabase } from "../support/Databases.ts"

it.effect("The check of the database for /readyz fails after one second", () =>
  Effect.gen(function*() {
    const check = Context.get(
      yield* Layer.build(Layer.provide(Readiness.layer(databaseErrors), silentDatabase)),
      Readiness
    )
    const fiber = yield* Effect.forkChild(check, { startImmediately: true })
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(fiber.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(yield* Effect.flip(Fiber.join(fiber)), databaseErrors.unavailable)
  }))
