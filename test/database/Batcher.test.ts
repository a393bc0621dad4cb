import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Latch, Option, Scope, type Tracer } from "effect"
import { TestClock } from "effect/testing"
import * as Batcher from "../../src/database/Batcher.ts"
import { databaseSilent } from "../../src/database/Deadline.ts"

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

const unavailable = Exit.fail(databaseSilent)

/** How the calls have ended so far. */
const ends = (fibers: ReadonlyArray<Fiber.Fiber<unknown, unknown>>) =>
  fibers.map((fiber) => fiber.pollUnsafe() ?? "waits")

describe("A call", () => {
  it.effect("whose function throws fails its calls, and the next one runs", () =>
    Effect.gen(function*() {
      const run = (items: ReadonlyArray<number>) => {
        if (items.includes(0)) throw new Error("broken")
        return Effect.succeed(new Map(items.map((item) => [item, 1 / item])))
      }
      const invert = yield* Batcher.make({ name: "invert", concurrency: 1, size: 10, run })
      assert.match(String(yield* Effect.exit(invert(0))), /broken/)
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

describe("A batch", () => {
  it.effect("starts after its calls, is bounded in number and size, and has the newest calls first", () =>
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

  it.effect("has a span with links to its requests, unless none is traced", () =>
    Effect.gen(function*() {
      const { call, release, spans } = yield* make()
      yield* release
      const [a, b] = [yield* Effect.makeSpan("a"), yield* Effect.makeSpan("b")]
      yield* Effect.forEach([a, b], (span, item) => Effect.withParentSpan(call(item), span), { concurrency: 2 })
      yield* call(3)
      const [traced, untraced] = spans
      assert.deepInclude(traced, { name: "double", parent: Option.some(a), links: [{ span: b, attributes: {} }] })
      assert.isUndefined(untraced)
    }))
})
