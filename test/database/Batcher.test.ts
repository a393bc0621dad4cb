import { assert, describe, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Exit, Fiber, Latch, Logger, Option, Scheduler, Scope, type Tracer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import * as Batcher from "../../src/database/Batcher.ts"

type Options = Readonly<Partial<Record<"concurrency" | "size", number> & { hangs: boolean; scope: Scope.Scope }>>

/**
 * Makes a batcher of numbers, in `scope` if there is one. Its runs wait for `release`, fail for the item -1, and are
 * recorded. An interrupted run that `hangs` ends at the end of the test, or at `endHanging`.
 */
const make = Effect.fnUntraced(function*({ concurrency = 1, hangs = false, scope, size = 100 }: Options = {}) {
  const hanging = Latch.makeUnsafe(!hangs)
  const runs: Array<ReadonlyArray<number>> = []
  const spans: Array<Tracer.Span | undefined> = []
  const released = yield* Deferred.make<void>()
  const testScope = yield* Effect.scope
  const call = yield* Batcher.make({
    name: "double",
    late: databaseErrors.unavailable,
    concurrency,
    size,
    run: Effect.fnUntraced(function*(items: ReadonlyArray<number>) {
      runs.push(items)
      spans.push(Option.getOrUndefined(yield* Effect.option(Effect.currentSpan)))
      yield* Effect.onInterrupt(Deferred.await(released), () => hanging.await)
      return items.includes(-1) ? yield* Effect.fail("no number") : new Map(items.map((item) => [item, item * 2]))
    })
  }).pipe(Effect.provideService(Scope.Scope, scope ?? testScope))
  yield* Effect.addFinalizer(() => hanging.open)
  const turns = Effect.replicateEffect(Effect.yieldNow, 20)
  /** Starts calls, and waits until all of them wait. */
  const start = (...items: ReadonlyArray<number>) =>
    Effect.tap(Effect.forEach(items, (item) => Effect.forkChild(call(item))), turns)
  return { call, runs, spans, start, release: Deferred.succeed(released, undefined), endHanging: hanging.open }
})

const unavailable = Exit.fail(databaseErrors.unavailable)

/** How the calls have ended so far. */
const ends = (fibers: ReadonlyArray<Fiber.Fiber<unknown, unknown>>) =>
  fibers.map((fiber) => fiber.pollUnsafe() ?? "waits")

describe("A call", () => {
  it.effect("fails if the function of its batch throws, and the next one runs", () =>
    Effect.gen(function*() {
      const run = (items: ReadonlyArray<number>) => {
        if (items.includes(0)) throw new Error("broken")
        return Effect.succeed(new Map(items.map((item) => [item, 1 / item])))
      }
      const invert = yield* Batcher.make({
        name: "invert",
        late: databaseErrors.unavailable,
        concurrency: 1,
        size: 10,
        run
      })
      const exits = yield* Effect.replicateEffect(Effect.exit(invert(0)), 2, { concurrency: 2 })
      for (const exit of exits) assert.match(String(exit), /broken/)
      assert.strictEqual(yield* invert(2), 0.5)
    }))

  it.effect("fails three seconds after its start, even if an interrupted batch before it does not end", () =>
    Effect.gen(function*() {
      const { endHanging, release, runs, start } = yield* make({ hangs: true })
      const early = yield* start(1)
      yield* TestClock.adjust("2 seconds")
      const fibers = [...early, ...yield* start(2)]
      yield* TestClock.adjust("850 millis")
      assert.deepStrictEqual(ends(fibers), ["waits", "waits"])
      yield* TestClock.adjust("150 millis")
      assert.deepStrictEqual(ends(fibers), [unavailable, "waits"])
      yield* TestClock.adjust("1850 millis")
      assert.deepStrictEqual(ends(fibers), [unavailable, "waits"])
      yield* TestClock.adjust("150 millis")
      assert.deepStrictEqual(ends(fibers), [unavailable, unavailable])
      yield* release
      // The next batch starts once the interrupted one has ended.
      const [later] = yield* start(3)
      assert.deepStrictEqual(runs, [[1]])
      yield* endHanging
      assert.strictEqual(yield* Fiber.join(later ?? assert.fail()), 6)
      assert.deepStrictEqual(runs, [[1], [3]])
    }))

  it.effect("fails at once when the scope closes, whether it is queued, runs or starts later", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { start } = yield* make({ hangs: true, scope })
      const fibers = [...yield* start(1), ...yield* start(2)]
      assert.deepStrictEqual(ends(fibers), ["waits", "waits"])
      yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
      assert.deepStrictEqual(ends([...fibers, ...yield* start(3)]), [unavailable, unavailable, unavailable])
    }))
})

it.effect("A pause of the process does not count as waiting: replies that arrived meanwhile are read first", () =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    let pauseNanos = 0n
    const monotonicTimeNanosUnsafe = () => clock.monotonicTimeNanosUnsafe() + pauseNanos
    const paused = Object.assign(Object.create(clock) as Clock.Clock, { monotonicTimeNanosUnsafe })
    const { release, start } = yield* Effect.provideService(make(), Clock.Clock, paused)
    const fibers = yield* start(1)
    yield* TestClock.adjust("1 second")
    pauseNanos = 10_000_000_000n
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(ends(fibers), ["waits"])
    yield* release
    assert.deepStrictEqual(yield* Fiber.joinAll(fibers), [2])
  }))

describe("A batch", () => {
  it.effect("has the newest calls first, while at most two batches of three items run", () =>
    Effect.gen(function*() {
      const { release, runs, start } = yield* make({ concurrency: 2, size: 3 })
      const items = [0, 1, 2, 2, 0, 3, 4, 5, 6, 7, 8, 9, 10]
      const fibers = [yield* start(0, 1), yield* start(2, 2), yield* start(...items.slice(4))].flat()
      assert.deepStrictEqual(runs, [[0, 1], [2]])
      yield* release
      assert.deepStrictEqual(yield* Fiber.joinAll(fibers), items.map((item) => item * 2))
      assert.deepStrictEqual(runs.slice(2), [[8, 9, 10], [5, 6, 7], [0, 3, 4]])
    }))

  it.effect("drops interrupted calls, and a failed batch fails only its own calls", () =>
    Effect.gen(function*() {
      const { call, release, runs, start } = yield* make()
      const [running, [dropped, ...waiting], other] = [yield* start(1), yield* start(2, 3, -1), yield* start(4)]
      yield* Fiber.interrupt(dropped ?? assert.fail())
      yield* release
      assert.deepStrictEqual(yield* Fiber.joinAll(running), [2])
      const exits = yield* Effect.forEach([...waiting, ...other], (fiber) => Fiber.await(fiber))
      assert.deepStrictEqual(exits, exits.map(() => Exit.fail("no number")))
      assert.deepStrictEqual(runs, [[1], [3, -1, 4]])
      assert.strictEqual(yield* call(5), 10)
    }))

  it.effect("whose calls are late is one line at level Error, however many calls it has", () => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
    return Effect.gen(function*() {
      const { start } = yield* make()
      yield* start(1, 2)
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(lines, ["Error A database statement failed: double took longer than 3s"])
    }).pipe(Effect.provide(Logger.layer([logger])))
  })

  it.effect("has a span with links to its sampled requests, unless none is sampled", () =>
    Effect.gen(function*() {
      const { call, release, spans } = yield* make()
      yield* release
      const [a, b] = [yield* Effect.makeSpan("a"), yield* Effect.makeSpan("b")]
      const unsampled = yield* Effect.makeSpan("unsampled", { sampled: false })
      const parents = [unsampled, a, b]
      yield* Effect.forEach(parents, (span, item) => Effect.withParentSpan(call(item), span), { concurrency: 3 })
      yield* Effect.withParentSpan(call(3), unsampled)
      const [traced, untraced] = spans
      assert.deepInclude(traced, { name: "double", parent: Option.some(a), links: [{ span: b, attributes: {} }] })
      assert.isUndefined(untraced)
    }))
})

const ms = (max: number) => fc.integer({ min: 0, max })
const turns = ms(12)
const isRejected = (item: number) => item % 5 === 4
const runEnds = "replies replies replies replies fails dies throws interrupts hangs lags".split(" ")
const scenario = fc.record({
  concurrency: fc.constantFrom(1, 1, 2),
  size: fc.constantFrom(3, 8),
  joins: fc.boolean(),
  // A small number makes fibers yield between any two operations.
  maxOps: fc.constantFrom(3, 5, 7, 11, 2_048),
  ends: fc.array(
    fc.record({
      end: fc.constantFrom(...runEnds),
      afterMs: fc.oneof(fc.constant(0), ms(50), ms(4_000))
    }),
    { maxLength: 8 }
  ),
  steps: fc.array(
    fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({ do: fc.constant("call" as const), items: fc.array(ms(9), { maxLength: 8 }), turns })
      },
      { weight: 3, arbitrary: fc.record({ do: fc.constant("adjust" as const), ms: fc.oneof(ms(60), ms(2_000)) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant("interrupt" as const), nth: ms(20), turns }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant("close" as const), turns }) }
    ),
    { minLength: 1, maxLength: 12 }
  )
})

interface Run {
  readonly items: ReadonlyArray<number>
  readonly startedMs: number
  readonly end: string
  endedMs: number | undefined
}

type Scenario = typeof scenario extends fc.Arbitrary<infer A> ? A : never

/** Runs a scenario, and checks the laws of `Batcher.ts`. */
const assertLaws = Effect.fnUntraced(
  function*({ concurrency, ends, joins, maxOps, size, steps }: Scenario) {
    const clock = yield* Clock.Clock
    const now = () => clock.currentTimeMillisUnsafe()
    const runs: Array<Run> = []
    let running = 0
    const scope = yield* Scope.make()
    let closedMs = Infinity
    const lease = 900
    const calls: Array<{
      readonly item: number
      readonly startedMs: number
      readonly firstRun: number
      readonly fiber: Fiber.Fiber<string | undefined, unknown>
      isInterrupted: boolean
      endedMs: number | undefined
    }> = []
    const run = (items: ReadonlyArray<number>) => {
      const { afterMs, end } = ends[runs.length] ?? { afterMs: 0, end: "replies" }
      const nth = runs.length
      const each: Run = { items, startedMs: now(), end, endedMs: undefined }
      // No half begins for calls that have all ended before.
      const waiting = calls.filter(({ endedMs, item }) => items.includes(item) && (endedMs ?? Infinity) >= now())
      assert.isNotEmpty(waiting, "a run without a waiting call")
      runs.push(each)
      const enter = Effect.sync(() => assert.isAtMost(running += 1, concurrency))
      assert.isAtMost(items.length, size)
      assert.strictEqual(new Set(items).size, items.length)
      const leave = Effect.sync(() => {
        running--
        each.endedMs = now()
      })
      if (end === "throws") {
        each.endedMs = now()
        throw new Error("throws")
      }
      const result = Effect.suspend((): Effect.Effect<ReadonlyMap<number, string>, string> => {
        if (end === "fails") return Effect.fail("fails")
        if (end === "dies") return Effect.die("dies")
        if (end === "interrupts") return Effect.interrupt
        if (items.some(isRejected)) return Effect.fail("rejected")
        return Effect.succeed(new Map(items.map((item) => [item, `${item} ${nth}`])))
      })
      const wait = end === "hangs" ? Effect.never : Effect.sleep(afterMs)
      const lagging = end === "lags" ? Effect.onInterrupt(wait, () => Effect.sleep("2 seconds")) : wait
      return Effect.acquireUseRelease(enter, () => Effect.andThen(lagging, result), () => leave)
    }
    const options = {
      name: "laws",
      late: databaseErrors.unavailable,
      concurrency,
      size,
      run,
      canSplit: (cause: unknown) => String(cause).includes("rejected"),
      ...joins && { mayJoin: (startedAt: bigint) => clock.monotonicTimeNanosUnsafe() - startedAt < lease * 1_000_000 }
    }
    const call = yield* Batcher.make(options).pipe(
      Effect.provideService(Scope.Scope, scope),
      Effect.provideService(Scheduler.MaxOpsBeforeYield, maxOps)
    )
    const turn = (count: number) => Effect.replicateEffect(Effect.yieldNow, count)
    /** Lets fibers that yield often reach their next wait before time passes. */
    const settle = turn(maxOps < 100 ? 60 : 10)
    const advance = Effect.fnUntraced(function*(duration: number) {
      for (let left = duration; left > 0; left -= 50) {
        yield* settle
        yield* TestClock.adjust(Math.min(left, 50))
      }
      yield* settle
    })
    for (const step of steps) {
      if (step.do === "adjust") yield* advance(step.ms)
      else if (step.do === "close") {
        closedMs = Math.min(closedMs, now())
        yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
      } else if (step.do === "interrupt") {
        const target = calls[step.nth]
        if (target !== undefined) {
          target.isInterrupted ||= target.endedMs === undefined
          target.fiber.interruptUnsafe()
        }
      } else {
        for (const item of step.items) {
          const firstRun = runs.length
          const fiber = yield* Effect.forkChild(call(item), { startImmediately: true })
          const each: typeof calls[number] = {
            item,
            startedMs: now(),
            firstRun,
            fiber,
            isInterrupted: false,
            endedMs: undefined
          }
          calls.push(each)
          fiber.addObserver(() => void (each.endedMs = now()))
        }
      }
      if ("turns" in step) yield* turn(step.turns)
    }
    // The last call ends after three seconds, and its run at most two seconds later.
    yield* advance(6_000)
    for (const { endedMs, fiber, firstRun, isInterrupted, item, startedMs } of calls) {
      const exit = fiber.pollUnsafe() ?? assert.fail(`a call of ${item} has no end`)
      const tookMs = (endedMs ?? Infinity) - startedMs
      assert.isAtMost(tookMs, 3_000)
      assert.isTrue((endedMs ?? 0) <= Math.max(closedMs, startedMs), "a call outlives its scope")
      if (isInterrupted) continue
      const text = String(exit)
      const mayUse = (each: Run, nth: number) =>
        each.items.includes(item) && (nth >= firstRun || (joins && startedMs - each.startedMs < lease))
      if (Exit.isSuccess(exit)) {
        const [own, nth] = (exit.value ?? assert.fail("no result")).split(" ").map(Number)
        const used = runs[nth ?? 0] ?? assert.fail("no run")
        assert.deepStrictEqual([own, mayUse(used, nth ?? 0), isRejected(item)], [item, true, false])
        // Two steps of the clock, because fibers that yield often may need both.
        assert.isAtMost((endedMs ?? 0) - (used.endedMs ?? 0), 100, "a call waits for a run that is not its own")
      } else if (text.includes("rejected")) assert.isTrue(isRejected(item), "fails for the value of another call")
      else if (text.includes("ServiceUnavailable")) {
        const isInterruptedRun = runs.some((each, nth) => mayUse(each, nth) && each.end === "interrupts")
        assert.isTrue(tookMs >= 2_850 || closedMs <= (endedMs ?? 0) || isInterruptedRun, "fails too early")
      } else {
        const end = /fails|dies|throws/.exec(text)?.[0] ?? assert.fail(text)
        assert.isTrue(runs.some((each, nth) => mayUse(each, nth) && each.end === end), text)
      }
    }
    assert.strictEqual(running, 0, "a run outlives its calls")
  }
)

/** A batch begins just before its calls are late, and is rejected when they are, but no tick has ended them yet. */
const lateHalves: Scenario = {
  concurrency: 1,
  size: 3,
  joins: false,
  maxOps: 3,
  ends: [{ end: "hangs", afterMs: 0 }],
  steps: [
    { do: "call", items: [0], turns: 0 },
    { do: "adjust", ms: 50 },
    { do: "call", items: [0, 4], turns: 0 },
    { do: "interrupt", nth: 0, turns: 0 }
  ]
}

it("A batcher keeps its laws in any order of calls, ends of runs, interruptions and the end of its scope", () =>
  fc.assert(
    fc.asyncProperty(scenario, async (each) => {
      const laws = Effect.provide(assertLaws(each), [TestClock.layer(), Logger.layer([])])
      const exit = await Effect.runPromiseExit(laws)
      assert.isTrue(Exit.isSuccess(exit), String(exit))
    }),
    { numRuns: 150, examples: [[lateHalves]] }
  ))
