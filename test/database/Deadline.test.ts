import { assert, it } from "@effect/vitest"
import { Clock, Duration, Effect, Exit, Latch, Logger, Scheduler, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { setTimeout } from "node:timers/promises"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import * as Deadline from "../../src/database/Deadline.ts"

it.effect("A call fails with 503 three seconds after its start, even if its statement cannot be interrupted", () =>
  Effect.gen(function*() {
    const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
    const hanging = Latch.makeUnsafe()
    const statement = Effect.onInterrupt(Effect.never, () => hanging.await)
    const call = yield* Effect.forkChild(withinDeadline(statement), { startImmediately: true })
    yield* Effect.addFinalizer(() => hanging.open)
    yield* TestClock.adjust("2999 millis")
    assert.isUndefined(call.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(call.pollUnsafe(), Exit.fail(databaseErrors.unavailable))
  }))

it.live("A call succeeds if its reply arrived while the process was paused, before a timer that fires late", () =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    // After a pause, the timers that are due fire at once. The reply is read a turn later.
    const sleep = (duration: Duration.Duration) =>
      Duration.toSeconds(duration) > 1 ? Effect.void : clock.sleep(duration)
    const paused = Object.assign(Object.create(clock) as Clock.Clock, { sleep })
    const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
    const statement = Effect.as(Effect.promise(() => setTimeout(10)), "reply")
    assert.strictEqual(yield* Effect.provideService(withinDeadline(statement), Clock.Clock, paused), "reply")
  }))

it.effect("A late call logs its timeout, or that its operation's calls took three seconds together", () => {
  const logged: Array<unknown> = []
  const logger = Logger.make(({ message }) => void logged.push(message))
  return Effect.gen(function*() {
    const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
    const late = Effect.ignore(withinDeadline(Effect.never))
    const calls = Deadline.shared(Effect.andThen(withinDeadline(Effect.sleep("1750 millis")), late))
    yield* Effect.forkChild(calls, { startImmediately: true })
    yield* Effect.forkChild(late, { startImmediately: true })
    yield* TestClock.adjust("3 seconds")
    assert.deepStrictEqual(logged.flat().map(String).toSorted(), [
      "A database statement failed: it took longer than 3s",
      "A database statement failed: the statements of its operation took longer than 3s together"
    ])
  }).pipe(Effect.provide(Logger.layer([logger])))
})

const ms = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 4_000 }))
const scenario = fc.record({
  // The statements follow one another within one call of `shared`.
  statements: fc.array(
    fc.record({
      end: fc.constantFrom("replies", "replies", "fails", "dies", "interrupts", "hangs", "lags"),
      afterMs: ms
    }),
    { minLength: 1, maxLength: 4 }
  ),
  isShared: fc.boolean(),
  // A small number makes fibers yield between any two operations.
  maxOps: fc.integer({ min: 3, max: 25 }),
  interrupt: fc.option(fc.record({ afterMs: ms, turns: fc.integer({ min: 0, max: 30 }) })),
  closeMs: fc.option(ms)
})

type Scenario = typeof scenario extends fc.Arbitrary<infer A> ? A : never

/** Runs a scenario, and checks the laws of `Deadline.ts`. */
const assertLaws = Effect.fnUntraced(function*({ closeMs, interrupt, isShared, maxOps, statements }: Scenario) {
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const scope = yield* Scope.make()
  let [running, isInterrupted, closedMs] = [0, false, Infinity]
  const calls: Array<{ readonly startedMs: number; endedMs: number; exit: string }> = []
  const statement = ({ afterMs, end }: typeof statements[number]) => {
    const result: Effect.Effect<string, string> = end === "fails"
      ? Effect.fail(end)
      : end === "dies"
      ? Effect.die(end)
      : end === "interrupts"
      ? Effect.interrupt
      : Effect.succeed(end)
    const wait = end === "hangs" ? Effect.never : Effect.sleep(afterMs)
    return Effect.acquireUseRelease(
      Effect.sync(() => running++),
      () => Effect.andThen(end === "lags" ? Effect.onInterrupt(wait, () => Effect.sleep("2 seconds")) : wait, result),
      () => Effect.sync(() => running--)
    )
  }
  const withinDeadline = yield* Effect.provideService(Deadline.make(databaseErrors.unavailable), Scope.Scope, scope)
  const all = Effect.forEach(statements, (each) =>
    Effect.suspend(() => {
      const startedMs = now()
      const record = (exit: Exit.Exit<string, unknown>) =>
        Effect.sync(() => void calls.push({ startedMs, endedMs: now(), exit: String(exit) }))
      return Effect.exit(Effect.onExit(withinDeadline(statement(each)), record))
    }))
  const request = Effect.provideService(
    isShared ? Deadline.shared(all) : all,
    Scheduler.MaxOpsBeforeYield,
    maxOps
  )
  const startedMs = now()
  const fiber = yield* Effect.forkChild(request, { startImmediately: true })
  const lags = statements.some(({ end }) => end === "lags")
  const settle = Effect.replicateEffect(Effect.yieldNow, 60)
  for (let at = 0; at < 20_000; at += 50) {
    if (interrupt !== null && !isInterrupted && interrupt.afterMs <= at) {
      yield* Effect.replicateEffect(Effect.yieldNow, interrupt.turns)
      isInterrupted = true
      fiber.interruptUnsafe()
    }
    if (closeMs !== null && closeMs <= at && closedMs === Infinity) {
      closedMs = now()
      yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    }
    yield* settle
    if (now() > closedMs && !lags) assert.strictEqual(running, 0, "a statement outlives the scope")
    if (fiber.pollUnsafe() !== undefined && running === 0) break
    yield* TestClock.adjust(50)
  }
  assert.isDefined(fiber.pollUnsafe(), "a call has no end")
  assert.strictEqual(running, 0, "a statement has no owner")
  for (const [nth, { endedMs, exit, startedMs: callMs }] of calls.entries()) {
    // A call has ended two steps of the clock after its deadline, even if fibers yield often.
    assert.isAtMost(endedMs - callMs, 3_100)
    if (isShared) assert.isAtMost(endedMs - startedMs, 3_100 + 50 * nth, "calls do not share a deadline")
    const end = statements[nth]?.end ?? assert.fail()
    if (isInterrupted && /Interrupt/.test(exit)) continue
    if (/ServiceUnavailable/.test(exit)) {
      const isLate = endedMs - (isShared ? startedMs : callMs) >= 3_000
      assert.isTrue(isLate || end === "interrupts" || closedMs <= endedMs, "a call fails too early")
    } else assert.include(exit, end)
  }
})

/** A call that is interrupted at each place where its fiber can yield. */
const interruptedAtEachStep = Array.from({ length: 300 }, (_, index): [Scenario] => [{
  statements: [{ end: "hangs", afterMs: 0 }],
  isShared: index % 2 === 0,
  maxOps: 3 + Math.floor(index / 10),
  interrupt: { afterMs: 0, turns: Math.floor(index / 2) % 5 },
  closeMs: null
}])

it("A deadline keeps its laws in any order of ends of its statements, interruptions and the end of its scope", () =>
  fc.assert(
    fc.asyncProperty(scenario, async (each) => {
      const laws = Effect.provide(assertLaws(each), [TestClock.layer(), Logger.layer([])])
      const exit = await Effect.runPromiseExit(laws)
      assert.isTrue(Exit.isSuccess(exit), String(exit))
    }),
    { numRuns: 600, examples: interruptedAtEachStep }
  ))
