/** Load on several limiters while their Redis fails. */
import { Context, Effect, Fiber, Layer, Metric } from "effect"
import type { Caller } from "../../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../../src/rate-limit/RateLimiter.ts"
import { limiterOn } from "../../support/Harness.ts"

type Limiter = RateLimiter["Service"]

export const sleep = (milliseconds: number) =>
  Effect.promise(() => new Promise((resolve) => setTimeout(resolve, milliseconds)))

/** Waits until `condition` holds. Returns the milliseconds. */
export const until = (condition: Effect.Effect<boolean>) =>
  Effect.gen(function*() {
    const start = performance.now()
    while (!(yield* condition)) yield* sleep(5)
    return performance.now() - start
  })

/** A limiter as a process of its own has it, with its own metrics. */
export const makeLimiter = Effect.fnUntraced(function*(url: string) {
  const registry = new Map()
  const context = yield* Layer.build(Layer.fresh(limiterOn(url))).pipe(
    Effect.provideService(Metric.MetricRegistry, registry),
    Effect.orDie
  )
  const metric = (id: string) =>
    Effect.map(
      Effect.provideService(Metric.snapshot, Metric.MetricRegistry, registry),
      (metrics) => metrics.find((each) => each.id === id)?.state
    )
  return {
    ...Context.get(context, RateLimiter),
    /** The number of decisions that this limiter made without Redis. */
    localDecisions: Effect.map(
      metric("rate_limit_fallback_decisions_total"),
      (state) => state !== undefined && "count" in state ? Number(state.count) : 0
    ),
    /** The value of the metric that shows the use of local counts. */
    fallback: Effect.map(
      metric("rate_limit_fallback"),
      (state) => state !== undefined && "value" in state ? Number(state.value) : undefined
    )
  }
})

/** Waits until all limiters count in Redis, or one of them does not. */
export const untilShared = (limiters: ReadonlyArray<Limiter>) =>
  until(Effect.map(Effect.forEach(limiters, ({ counting }) => counting), (all) => all.every((now) => now === "shared")))

export const untilFallback = ({ counting }: Limiter) => until(Effect.map(counting, (now) => now === "fallback"))

/** A clock that advances by at most 10 ms between two turns of the event loop, until the scope closes. */
const awakeTime = Effect.gen(function*() {
  let awake = 0
  let checkedAt = performance.now()
  const check = (): number => {
    const now = performance.now()
    awake += Math.min(now - checkedAt, 10)
    checkedAt = now
    return awake
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => setInterval(check, 2)),
    (timer) => Effect.sync(() => clearInterval(timer))
  )
  return check
})

export interface Load {
  /** The number of allowed requests of each caller. */
  readonly allowed: ReadonlyMap<Caller, number>
  readonly decided: () => number
  /** The longest decision in milliseconds in which this process ran. A busy machine stops it for longer. */
  readonly slowest: () => number
  readonly stop: Effect.Effect<void>
}

/** Charges each caller through all limiters in turn, until `stop`. An error or a defect fails `stop`. */
export const load = Effect.fnUntraced(function*(options: {
  readonly limiters: ReadonlyArray<Limiter>
  readonly callers: ReadonlyArray<Caller>
  readonly perMinute: number
  readonly everyMs: number
}) {
  const limits = { perMinute: options.perMinute, perDay: 1_000_000 }
  const allowed = new Map(options.callers.map((caller) => [caller, 0]))
  let decided = 0
  let slowest = 0
  const state = { isStopped: false }
  const awake = yield* awakeTime
  const run = Effect.fnUntraced(function*(limiter: Limiter, caller: Caller) {
    while (!state.isStopped) {
      const before = awake()
      const decision = yield* limiter.charge(caller, limits)
      slowest = Math.max(slowest, awake() - before)
      decided++
      if (decision.allowed) allowed.set(caller, (allowed.get(caller) ?? 0) + 1)
      yield* sleep(options.everyMs)
    }
  })
  const fiber = yield* Effect.forkChild(Effect.all(
    options.limiters.flatMap((limiter) => options.callers.map((caller) => run(limiter, caller))),
    { concurrency: "unbounded", discard: true }
  ))
  const running: Load = {
    allowed,
    decided: () => decided,
    slowest: () => slowest,
    stop: Effect.suspend(() => {
      state.isStopped = true
      return Fiber.join(fiber)
    })
  }
  return running
})
