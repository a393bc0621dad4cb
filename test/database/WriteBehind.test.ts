import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Logger, References, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

const burstSize = 1_200
const maxPending = 1_500
const intervalMs = 1_000
/** The clock moves in these steps, so that a fiber that yields often acts at most a step late. */
const stepMs = 500

type Ids = ReadonlyArray<number>

const ms = fc.integer({ min: 0, max: 7_000 })
const outcome = fc.record({
  kind: fc.constantFrom("succeed", "fail", "die", "throw", "loseReply", "ignoreInterruption", "hang", "commitLate"),
  ms
})
const event = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("add" as const), key: fc.constantFrom("a", "b", "c") }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("burst" as const) }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("read" as const), ms, interruptAfter: fc.option(ms) }) }
)
const plan = fc.record({
  events: fc.array(event, { maxLength: 24 }),
  outcomes: fc.array(outcome, { maxLength: 8 }),
  // With few, the run loop yields often, so that fibers and interruptions meet at each step.
  operationsBeforeYield: fc.constantFrom(23, 61, 2_048)
})
type Plan = typeof plan extends fc.Arbitrary<infer A> ? A : never

/** Runs a plan, and fails with the first law that does not hold. */
const runPlan = Effect.fnUntraced(
  function*({ events, outcomes }: Plan) {
    const added = new Map<string, Array<number>>()
    const stored = new Map<string, Array<number>>()
    /** Ids whose write has committed, although the buffer saw it fail. */
    const unconfirmed = new Set<number>()
    const script = [...outcomes]
    let [nextId, running, dropped, isClosing, lastFlushFailed] = [0, 0, 0, false, false]
    const clock = yield* Clock.Clock
    const now = () => clock.currentTimeMillisUnsafe()
    /** Since when a value is pending while no write and no read runs. */
    let waitingSince = 0
    const losses: Array<string> = []

    const write = (values: ReadonlyMap<string, Ids>) => {
      const { kind, ms } = script.shift() ?? { kind: "succeed", ms: 0 }
      const isLast = isClosing
      assert.isAtMost(values.size, 1_000, "a write has at most 1,000 values")
      assert.strictEqual(++running, 1, "one write runs at a time")
      const commit = Effect.sync(() => {
        for (const [key, ids] of values) stored.set(key, [...stored.get(key) ?? [], ...ids])
      })
      const commitUnconfirmed = Effect.andThen(
        commit,
        Effect.sync(() => {
          for (const ids of values.values()) ids.forEach((id) => unconfirmed.add(id))
        })
      )
      const effects = {
        succeed: Effect.delay(commit, ms),
        fail: Effect.delay(Effect.fail("failed"), ms),
        die: Effect.delay(Effect.die("died"), ms),
        throw: Effect.suspend((): Effect.Effect<void> => {
          throw new Error("thrown")
        }),
        loseReply: Effect.delay(Effect.andThen(commitUnconfirmed, Effect.fail("lost reply")), ms),
        ignoreInterruption: Effect.uninterruptible(Effect.delay(2 * ms < 5_000 ? commit : commitUnconfirmed, 2 * ms)),
        hang: Effect.never,
        commitLate: Effect.onInterrupt(Effect.never, () => Effect.delay(commitUnconfirmed, ms))
      }
      return Effect.onExit(effects[kind], (exit) =>
        Effect.sync(() => {
          running--
          waitingSince = now()
          if (isLast) lastFlushFailed = Exit.isFailure(exit)
        }))
    }

    const countDropped = Logger.make(({ message }) => {
      dropped += Number(/(\d+) values were dropped/.exec(String(message))?.[1] ?? 0)
      if (/^[1-9]\d* values for the table pets are lost, /.test(String(message))) losses.push("logged")
    })
    const scope = yield* Scope.make()
    const failures = {
      makeCounter: () => Effect.succeed(Effect.void),
      onLostValues: () => void losses.push("reported")
    }
    const buffer = yield* WriteBehind.make<string, Ids>({
      table: "pets",
      interval: intervalMs,
      maxPending,
      combine: (older, newer) => [...older, ...newer],
      write
    }).pipe(
      Scope.provide(scope),
      Effect.provideService(BackgroundFailures, failures),
      Effect.provideService(Logger.CurrentLoggers, new Set([countDropped]))
    )

    /** Checks that each id is stored or pending once and in order, and returns how many keys have lost ids. */
    const check = (pending: Ids, when: string): number => {
      let incomplete = 0
      const isPending = new Set(pending)
      for (const [key, ids] of added) {
        const all = stored.get(key) ?? []
        const repeated = all.filter((id, index) => all.indexOf(id) !== index)
        // Calls `assert` only for a failure: an assertion for each key would take 60 % of this file's time.
        if (repeated.some((id) => !unconfirmed.has(id))) assert.fail(`${when}: written twice`)
        const known = new Set([...all, ...ids.filter((id) => isPending.has(id))])
        const isTwice = all.some((id) => isPending.has(id) && !unconfirmed.has(id))
        if (isTwice) assert.fail(`${when}: stored and pending`)
        const [order, expected] = [[...known].join(), ids.filter((id) => known.has(id)).join()]
        if (order !== expected) assert.strictEqual(order, expected, `${when}: the order of ${key}`)
        if (known.size < ids.length) incomplete++
      }
      return incomplete
    }
    const add = (key: string) => {
      if (buffer.size() === 0) waitingSince = now()
      const id = nextId++
      const ids = added.get(key)
      if (ids === undefined) added.set(key, [id])
      else ids.push(id)
      buffer.add(key, [id])
      return id
    }
    let readsRunning = 0
    const read = (duration: number) =>
      buffer.betweenFlushes(Effect.acquireUseRelease(
        Effect.sync(() => readsRunning++),
        () => Effect.map(Effect.sleep(duration), checkRead),
        () =>
          Effect.sync(() => {
            readsRunning--
            waitingSince = now()
          })
      ))
    const checkRead = () => {
      assert.strictEqual(running, 0, "no write runs during a read")
      const incomplete = check(buffer.values().flat(), "a read between flushes")
      if (nextId < maxPending) assert.strictEqual(incomplete, 0, "a read between flushes sees each value")
    }

    const reads: Array<Fiber.Fiber<unknown, unknown>> = []
    const pass = Effect.fnUntraced(function*(duration: number) {
      for (let left = duration; left > 0; left -= stepMs) {
        yield* TestClock.adjust(Math.min(left, stepMs))
        yield* Effect.replicateEffect(Effect.yieldNow, 10)
        if (buffer.size() > 0 && running + readsRunning === 0) {
          assert.isAtMost(now() - waitingSince, intervalMs + stepMs, "a flush starts an interval after the first value")
        }
      }
    })
    for (const event of events) {
      if (event.kind === "pass") yield* pass(event.ms)
      else if (event.kind === "add") {
        const id = add(event.key)
        assert.include(buffer.values().flat(), id, "the newest value is pending")
      } else if (event.kind === "burst") { for (let i = 0; i < burstSize; i++) add(`burst ${nextId}`) }
      else {
        const reading = yield* Effect.forkChild(read(event.ms), { startImmediately: true })
        reads.push(reading)
        if (event.interruptAfter === null) continue
        yield* Effect.forkChild(Effect.delay(Fiber.interrupt(reading), event.interruptAfter))
      }
      assert.isAtMost(buffer.values().length, maxPending, "at most maxPending keys are pending")
    }
    isClosing = true
    const closing = yield* Effect.forkChild(
      Scope.close(scope, Exit.void).pipe(
        Effect.provideService(Logger.CurrentLoggers, new Set([countDropped]))
      )
    )
    // Each outcome takes at most 19 seconds. Where the run loop yields often, a fiber needs several turns for a step.
    for (let second = 0; second < 600 && closing.pollUnsafe() === undefined; second++) {
      yield* TestClock.adjust("1 second")
    }
    assert.isTrue(Exit.isSuccess(closing.pollUnsafe() ?? Exit.fail("open")), "the scope closes")
    const incomplete = check([], "at the end")
    assert.deepStrictEqual(losses, lastFlushFailed ? ["logged", "reported"] : [], "lost values are reported once")
    if (!lastFlushFailed) assert.isAtMost(incomplete, dropped, "only dropped values are lost")
    for (const fiber of reads) {
      const exit = yield* Fiber.await(fiber)
      // A read may have been interrupted, but no assertion in it may have failed.
      if (Exit.isFailure(exit)) {
        assert.isFalse(exit.cause.reasons.some(({ _tag }) => _tag === "Die"), String(exit.cause))
      }
    }
  },
  (effect, { operationsBeforeYield }) =>
    Effect.provideService(Effect.scoped(effect), References.MaxOpsBeforeYield, operationsBeforeYield)
)

it("A write-behind buffer keeps its laws in any order of adds, flushes, failures, late commits, reads and its end", async () => {
  const holds = fc.asyncProperty(
    plan,
    (plan) => Effect.runPromise(Effect.provide(runPlan(plan), [TestClock.layer(), Logger.layer([])]))
  )
  // Values are given back while as many newer ones are pending.
  const overflowing: Plan = {
    events: [{ kind: "burst" }, { kind: "pass", ms: 1_500 }, { kind: "burst" }, { kind: "pass", ms: 2_000 }],
    outcomes: [{ kind: "fail", ms: 2_000 }],
    operationsBeforeYield: 2_048
  }
  const { counterexample, errorInstance } = await fc.check(holds, { numRuns: 150, examples: [[overflowing]] })
  assert.isNull(counterexample, `${String(errorInstance)} ${JSON.stringify(counterexample)}`)
})
