/** Tests the promises of batches to their calls. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Exit, Fiber, Option, type Tracer } from "effect"
import * as RequestBatcher from "../../src/database/RequestBatcher.ts"

const Caller = Context.Reference<string>("test/Caller", { defaultValue: () => "none" })

/** Makes a batcher of numbers whose runs wait for `release`, fail for the item -1, and are recorded. */
const make = Effect.fnUntraced(function*({ concurrency = 1, size = 100 } = {}) {
  const runs: Array<ReadonlyArray<number>> = []
  const spans: Array<Tracer.Span | undefined> = []
  const callers: Array<string> = []
  const released = yield* Deferred.make<void>()
  const call = yield* RequestBatcher.make({
    name: "double",
    concurrency,
    size,
    timeout: Duration.seconds(4),
    run: Effect.fnUntraced(function*(items: ReadonlyArray<number>) {
      runs.push(items)
      callers.push(yield* Caller)
      spans.push(Option.getOrUndefined(yield* Effect.option(Effect.currentSpan)))
      yield* Deferred.await(released)
      return items.includes(-1) ? yield* Effect.fail("no number") : new Map(items.map((item) => [item, item * 2]))
    })
  })
  /** Starts calls, and waits until all of them wait. */
  const start = (...items: ReadonlyArray<number>) =>
    Effect.tap(
      Effect.forEach(items, (item) => Effect.forkChild(call(item))),
      Effect.replicateEffect(Effect.yieldNow, 20)
    )
  return { call, callers, runs, spans, start, release: Deferred.succeed(released, undefined) }
})

describe("A batch", () => {
  it.effect("starts after its calls, and batches are bounded in number and size and lose no call", () =>
    Effect.gen(function*() {
      const { release, runs, start } = yield* make({ concurrency: 2, size: 3 })
      const items = [0, 1, 2, 2, 0, 3, 4, 5, 6, 7, 8, 9, 10]
      const fibers = [yield* start(0, 1), yield* start(2, 2), yield* start(...items.slice(4))].flat()
      assert.deepStrictEqual(runs, [[0, 1], [2]])
      yield* release
      assert.deepStrictEqual(yield* Fiber.joinAll(fibers), items.map((item) => item * 2))
      assert.deepStrictEqual(runs.slice(2), [[0, 3, 4], [5, 6, 7], [8, 9, 10]])
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

  it.effect("has a span with links to its requests, unless none is traced, and not the context of its first caller", () =>
    Effect.gen(function*() {
      const { call, callers, release, spans } = yield* make()
      yield* release
      const [a, b] = [yield* Effect.makeSpan("a"), yield* Effect.makeSpan("b")]
      yield* Effect.forEach([a, b], (span, item) => Effect.withParentSpan(call(item), span), { concurrency: 2 })
      yield* Effect.provideService(call(3), Caller, "first")
      assert.deepStrictEqual(callers, ["none", "none"])
      const [traced, untraced] = spans
      assert.deepInclude(traced, { name: "double", parent: Option.some(a), links: [{ span: b, attributes: {} }] })
      assert.isUndefined(untraced)
    }))
})
