/** Tests the promises of batches to their calls. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Exit, Fiber, Option, type Tracer } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import * as RequestBatcher from "../../src/database/RequestBatcher.ts"

const Caller = Context.Reference<string>("test/Caller", { defaultValue: () => "none" })

/** Makes a batcher of numbers whose runs wait for `release`, fail for the item -1, and are recorded. */
const make = Effect.fnUntraced(function*({ concurrency = 1, size = 100 } = {}) {
  const runs: Array<ReadonlyArray<number>> = []
  const callers = new Set<string>()
  const spans: Array<Option.Option<Tracer.Span>> = []
  const state = { release: yield* Deferred.make<void>(), inFlight: 0, maxInFlight: 0 }
  const call = yield* RequestBatcher.make({
    name: "double",
    concurrency,
    size,
    timeout: Duration.seconds(4),
    run: Effect.fnUntraced(function*(items: ReadonlyArray<number>) {
      runs.push(items)
      callers.add(yield* Caller)
      spans.push(yield* Effect.option(Effect.currentSpan))
      state.maxInFlight = Math.max(state.maxInFlight, ++state.inFlight)
      yield* Effect.ensuring(Deferred.await(state.release), Effect.sync(() => state.inFlight--))
      if (items.includes(-1)) return yield* Effect.fail("no number" as const)
      return new Map(items.map((item) => [item, item * 2]))
    })
  })
  return {
    call,
    callers,
    runs,
    spans,
    state,
    release: Effect.suspend(() => Deferred.succeed(state.release, undefined))
  }
})

/** Starts effects, and waits until all of them wait. */
const start = <A, E>(effects: ReadonlyArray<Effect.Effect<A, E>>) =>
  Effect.tap(
    Effect.forEach(effects, (effect) => Effect.forkChild(effect)),
    Effect.forEach(Array.from({ length: 20 }), () => Effect.yieldNow)
  )

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index)

describe("A batch", () => {
  it.effect("starts after its calls, and its runs are bounded in number and size and lose no call", () =>
    Effect.gen(function*() {
      const { call, release, runs, state } = yield* make({ concurrency: 2, size: 3 })
      const first = yield* start(numbers(0, 2).map(call))
      const second = yield* start([2, 2].map(call))
      const third = yield* start([0, ...numbers(3, 11)].map(call))
      assert.deepStrictEqual(runs, [[0, 1], [2]])
      yield* release
      const results = yield* Fiber.joinAll([...first, ...second, ...third])
      assert.deepStrictEqual(results, [0, 1, 2, 2, 0, ...numbers(3, 11)].map((item) => item * 2))
      assert.deepStrictEqual(runs.slice(2), [[0, 3, 4], [5, 6, 7], [8, 9, 10]])
      assert.strictEqual(state.maxInFlight, 2)
    }))

  it.effect("drops interrupted calls, and the failure of a run reaches its calls alone", () =>
    Effect.gen(function*() {
      const { call, release, runs } = yield* make()
      const running = yield* start([call(1)])
      const [dropped, ...waiting] = yield* start([2, 3, -1].map(call))
      const other = yield* start([call(4)])
      yield* Fiber.interrupt(dropped ?? assert.fail())
      yield* release
      assert.deepStrictEqual(yield* Fiber.joinAll(running), [2])
      const exits = yield* Effect.forEach([...waiting, ...other], (fiber) => Fiber.await(fiber))
      assert.deepStrictEqual(exits, exits.map(() => Exit.fail("no number" as const)))
      assert.deepStrictEqual(runs, [[1], [3, -1, 4]])
      assert.strictEqual(yield* call(5), 10)
    }))

  it.effect("fails with ServiceUnavailable after the timeout, also for calls that wait for another batch", () =>
    Effect.gen(function*() {
      const { call, release, runs } = yield* make()
      const [running] = yield* start([call(1)])
      const [waiting] = yield* start([call(2)])
      yield* TestClock.adjust("3999 millis")
      assert.deepStrictEqual(runs, [[1]])
      yield* TestClock.adjust("1 milli")
      assert.instanceOf(yield* Effect.flip(Fiber.join(running ?? assert.fail())), ServiceUnavailable)
      yield* TestClock.adjust("4 seconds")
      assert.instanceOf(yield* Effect.flip(Fiber.join(waiting ?? assert.fail())), ServiceUnavailable)
      yield* release
      assert.strictEqual(yield* call(3), 6)
    }))

  it.effect("has a span with links to its requests, and not the context of its first caller", () =>
    Effect.gen(function*() {
      const { call, callers, release, spans } = yield* make()
      yield* release
      yield* Effect.forEach(
        ["a", "b"],
        (name, item) => call(item).pipe(Effect.provideService(Caller, name), Effect.withSpan(name)),
        { concurrency: 2 }
      )
      assert.deepStrictEqual([...callers], ["none"])
      yield* call(3)
      const [traced, untraced] = spans.map(Option.getOrUndefined)
      const parent = traced && Option.getOrUndefined(traced.parent)
      const names = [parent, ...traced?.links.map(({ span }) => span) ?? []].map((span) =>
        span?._tag === "Span" ? span.name : undefined
      )
      assert.deepStrictEqual([traced?.name, ...names, untraced], ["double", "a", "b", undefined])
    }))
})
