import { assert, it } from "@effect/vitest"
import { Clock, Context, Duration, Effect, Exit, Fiber, Latch, Layer } from "effect"
import { TestClock } from "effect/testing"
import { setTimeout } from "node:timers/promises"
import * as Deadline from "../../src/database/Deadline.ts"
import { Readiness } from "../../src/database/Readiness.ts"
import { silentDatabase } from "../support/Databases.ts"

it.effect("The check of the database for /readyz fails after one second", () =>
  Effect.gen(function*() {
    const check = Context.get(yield* Layer.build(Layer.provide(Readiness.layer, silentDatabase)), Readiness)
    const fiber = yield* Effect.forkChild(check, { startImmediately: true })
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(fiber.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(yield* Effect.flip(Fiber.join(fiber)), Deadline.databaseSilent)
  }))

it.effect("A call fails with 503 three seconds after its start, even if its statement cannot be interrupted", () =>
  Effect.gen(function*() {
    const withinDeadline = yield* Deadline.make()
    const hanging = Latch.makeUnsafe()
    const statement = Effect.onInterrupt(Effect.never, () => hanging.await)
    const call = yield* Effect.forkChild(withinDeadline(statement), { startImmediately: true })
    yield* Effect.addFinalizer(() => hanging.open)
    yield* TestClock.adjust("2999 millis")
    assert.isUndefined(call.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(call.pollUnsafe(), Exit.fail(Deadline.databaseSilent))
  }))

it.live("A call succeeds if its reply arrived while the process was paused, before a timer that fires late", () =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    // After a pause, the timers that are due fire at once. The reply is read a turn later.
    const sleep = (duration: Duration.Duration) =>
      Duration.toSeconds(duration) > 1 ? Effect.void : clock.sleep(duration)
    const paused = Object.assign(Object.create(clock) as Clock.Clock, { sleep })
    const withinDeadline = yield* Deadline.make()
    const statement = Effect.as(Effect.promise(() => setTimeout(10)), "reply")
    assert.strictEqual(yield* Effect.provideService(withinDeadline(statement), Clock.Clock, paused), "reply")
  }))
