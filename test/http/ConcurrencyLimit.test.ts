import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Metric, Redacted, References, Scheduler, Stream } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as ConcurrencyLimit from "../../src/http/ConcurrencyLimit.ts"
import { layerService, RateLimiter } from "../../src/testing.ts"
import { memoryWith } from "../support/Databases.ts"
import { unlimitedKeyOptions } from "../support/Process.ts"

const maxRunning = ConcurrencyLimit.maxOperations

const neverFinds = memoryWith(() => ({ find: () => Effect.never }))

/** Calls `act` while a fiber stands before its operation number `operation`, counted with those of its children. */
class ActBefore extends Scheduler.MixedScheduler {
  operations = 0
  readonly operation: number
  readonly act: () => void
  constructor(operation: number, act: () => void) {
    super()
    this.operation = operation
    this.act = act
  }
  override shouldYield() {
    if (++this.operations !== this.operation) return false
    // The fiber goes on in a later turn.
    queueMicrotask(this.act)
    return true
  }
}

const fork = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

describe("A slot", () => {
  it.effect("is in the gauge of queued requests only while an operation waits for it, for a second at most", () =>
    Effect.gen(function*() {
      const limit = yield* ConcurrencyLimit.make(maxRunning)
      const queued = Effect.map(Metric.snapshot, ([gauge]) => gauge?.state)
      const [running] = yield* Effect.replicateEffect(fork(limit(Effect.never)), maxRunning)
      const counts = [yield* queued]
      yield* Effect.replicateEffect(fork(limit(Effect.never)), 3)
      counts.push(yield* queued)
      yield* Fiber.interrupt(running ?? assert.fail())
      yield* TestClock.adjust("999 millis")
      // The other port starts.
      yield* ConcurrencyLimit.make(maxRunning)
      counts.push(yield* queued)
      yield* TestClock.adjust("1 milli")
      assert.deepStrictEqual([...counts, yield* queued], [0, 3, 2, 0].map((value) => ({ value })))
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  const ends = {
    succeeds: Effect.void,
    fails: Effect.fail("no"),
    dies: Effect.die("no"),
    "is interrupted": Effect.interrupt
  }
  const released = Object.entries<Effect.Effect<void, string>>(ends).flatMap(([title, end]) =>
    (["just before", "just after"] as const).map((moment) => [title, moment, end] as const)
  )
  it.effect.each(released)(
    "is released by an operation that %s, also if it waited, and a slot became free %s the end of its wait",
    ([, moment, end]) =>
      Effect.gen(function*() {
        const limit = yield* ConcurrencyLimit.make(maxRunning)
        yield* Effect.exit(limit(end))
        const held = yield* Effect.replicateEffect(fork(limit(Effect.never)), maxRunning - 1)
        const done = yield* Deferred.make<void>()
        yield* fork(limit(Deferred.await(done)))
        // Of two timers with the same end, the one that was set first fires first.
        const release = fork(Effect.delay(Deferred.succeed(done, undefined), "1 second"))
        if (moment === "just before") yield* release
        const waiting = yield* Effect.replicateEffect(fork(limit(end)), 3)
        if (moment === "just after") yield* release
        yield* TestClock.adjust("1 second")
        yield* Fiber.interruptAll(held)
        yield* TestClock.adjust("1 second")
        for (const fiber of waiting) yield* Fiber.await(fiber)
        let running = 0
        const operation = limit(Effect.andThen(Effect.sync(() => running++), Effect.never))
        yield* Fiber.interruptAll(yield* Effect.replicateEffect(fork(operation), maxRunning + 1))
        assert.strictEqual(running, maxRunning)
      })
  )

  const endings = {
    succeeds: Effect.void,
    fails: Effect.fail("no"),
    dies: Effect.die("no"),
    hangs: Effect.never,
    "takes 700 ms": Effect.sleep("700 millis")
  }
  const event = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ starts: fc.constantFrom(...Object.keys(endings) as Array<keyof typeof endings>) })
    },
    { weight: 3, arbitrary: fc.record({ interrupts: fc.nat(20), afterSteps: fc.nat(40) }) },
    { weight: 2, arbitrary: fc.record({ passes: fc.constantFrom(1, 300, 700, 1_000) }) }
  )
  // Each fiber yields after this number of steps, so that the next event meets it at any of its steps.
  const stepsPerYield = 3

  const runs = Number(process.env.SEEDS ?? 1) * 60
  const sampled = fc.sample(fc.array(event, { minLength: 5, maxLength: 40 }), { seed: 1, numRuns: runs })

  it.effect("is never lost, given twice or waited for longer than a second, whatever ends an operation at any step", () =>
    Effect.forEach(sampled, (events) =>
      Effect.gen(function*() {
        const maxSlots = 3
        const limit = yield* ConcurrencyLimit.make(maxSlots)
        const fibers: Array<Fiber.Fiber<void, unknown>> = []
        const running = new Set<number>()
        const startedAt: Array<number> = []
        let now = 0
        /** Lets all fibers reach their next wait, before and after `ms` pass. */
        const settle = Effect.repeat(Effect.yieldNow, { times: 100 })
        const pass = (ms: number) =>
          Effect.gen(function*() {
            yield* settle
            now += ms
            yield* TestClock.adjust(ms)
            yield* settle
          })
        const start = (ending: Effect.Effect<void, unknown>) =>
          Effect.gen(function*() {
            const id = startedAt.push(now) - 1
            const operation = Effect.acquireUseRelease(
              Effect.sync(() => {
                running.add(id)
                assert.isAtMost(running.size, maxSlots)
                assert.isAtMost(now - (startedAt[id] ?? 0), 1_000)
              }),
              () => ending,
              () => Effect.sync(() => running.delete(id))
            )
            const slow = Effect.provideService(limit(operation), References.MaxOpsBeforeYield, stepsPerYield)
            fibers.push(yield* Effect.forkChild(slow))
          })
        for (const each of events) {
          if ("starts" in each) yield* start(endings[each.starts])
          else if ("passes" in each) {
            yield* pass(each.passes)
          } else {
            for (let step = 0; step < each.afterSteps; step++) yield* Effect.yieldNow
            const fiber = fibers[each.interrupts % Math.max(fibers.length, 1)]
            if (fiber !== undefined) yield* Fiber.interrupt(fiber)
          }
        }
        yield* pass(1_000)
        for (const [id, fiber] of fibers.entries()) {
          if (!running.has(id)) assert.isDefined(fiber.pollUnsafe(), "An operation that does not run has ended")
        }
        yield* Fiber.interruptAll(fibers)
        const after = yield* Effect.replicateEffect(fork(limit(Effect.never)), maxSlots)
        const extra = yield* fork(limit(Effect.void))
        assert.isUndefined(extra.pollUnsafe(), "No slot was given back twice")
        yield* Fiber.interrupt(after[0] ?? assert.fail())
        yield* pass(10)
        assert.isTrue(extra.pollUnsafe()?._tag === "Success", "No slot was lost")
        yield* Fiber.interruptAll(after)
      })))

  /** When the only slot is given back to an operation that waits for it, in milliseconds. `null`: it has not to wait. */
  it.effect.each<readonly [title: string, releasedAfter: number | null, operation: Effect.Effect<void, unknown>]>([
    ["that has a slot at once", null, endings["takes 700 ms"]],
    ["that has a slot at once and fails", null, endings.fails],
    ["that waits for its slot", 500, endings["takes 700 ms"]],
    ["that waits for its slot and dies", 500, endings.dies],
    ["that gets its slot as its wait ends", 1_000, endings.succeeds],
    ["that never gets a slot", 5_000, endings.succeeds]
  ])(
    "is given back exactly once by an operation %s, interrupted at any of its steps",
    ([, releasedAfter, operation]) =>
      Effect.gen(function*() {
        const settle = Effect.replicateEffect(Effect.yieldNow, 20)
        for (let [step, isReached] = [1, true]; isReached; step++) {
          isReached = false
          const limit = yield* ConcurrencyLimit.make(1)
          let target: Fiber.Fiber<unknown, unknown> | undefined
          const scheduler = new ActBefore(step, () => {
            isReached = true
            target?.interruptUnsafe()
          })
          if (releasedAfter !== null) yield* fork(limit(Effect.sleep(releasedAfter)))
          target = yield* Effect.forkChild(Effect.provideService(limit(operation), Scheduler.Scheduler, scheduler))
          for (const ms of [500, 500, 700, 4_000]) {
            yield* settle
            yield* TestClock.adjust(ms)
          }
          yield* settle
          assert.isDefined(target.pollUnsafe(), `step ${step}: the operation has ended`)
          const next = yield* fork(limit(Effect.never))
          const extra = yield* fork(limit(Effect.void))
          yield* settle
          assert.isUndefined(extra.pollUnsafe(), `step ${step}: the slot was given back twice`)
          const [queued] = yield* Metric.snapshot
          assert.deepStrictEqual(queued?.state, { value: 1 }, `step ${step}: operations in the gauge`)
          yield* Fiber.interrupt(next)
          yield* settle
          assert.strictEqual(extra.pollUnsafe()?._tag, "Success", `step ${step}: the slot was lost`)
          if (step === 1) assert.isTrue(isReached)
          assert.isBelow(step, 1_000)
        }
      }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()))
  )

  it.effect("is taken only once the body has arrived, and a request that waits one second gets 503", () =>
    Effect.gen(function*() {
      const client = yield* HttpClient.HttpClient
      const { key } = yield* (yield* ApiKeys).issue(unlimitedKeyOptions)
      const authorized = HttpClientRequest.bearerToken(Redacted.value(key))
      const url = "http://petstore.test/v1/pets"
      const neverEnds = HttpClientRequest.bodyStream(Stream.never, { contentType: "application/json" })
      const slow = HttpClientRequest.post(url).pipe(authorized, neverEnds)
      const get = (path: string) => fork(client.execute(authorized(HttpClientRequest.get(url + path))))
      yield* Effect.replicateEffect(fork(client.execute(slow)), maxRunning)
      const served = yield* get("")
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(served)).status, 200)
      const [busy] = yield* Effect.replicateEffect(get("/1"), maxRunning)
      const waiting = yield* get("")
      yield* TestClock.adjust("1 second")
      const { headers, status } = yield* Fiber.join(waiting)
      assert.deepStrictEqual([status, headers["retry-after"]], [503, "1"])
      assert.include(headers["ratelimit-policy"], "q=2000000000", "the limits of the key")
      // The duration of a request includes its wait for a slot.
      const durations = (yield* Metric.snapshot).find(({ attributes, id }) =>
        id === "petstore_http_server_request_duration_seconds" && attributes?.["http.response.status_code"] === "503"
      )
      assert.deepInclude(durations?.state, { count: 1, sum: 1 })
      const next = yield* get("")
      yield* Fiber.interrupt(busy ?? assert.fail())
      assert.strictEqual((yield* Fiber.join(next)).status, 200)
    }).pipe(
      Effect.provide(Layer.provideMerge(layerService, Layer.merge(neverFinds, RateLimiter.layerMemory))),
      Effect.provideService(Metric.MetricRegistry, new Map())
    ))
})
