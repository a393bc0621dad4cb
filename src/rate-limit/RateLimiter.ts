/** The rate limiter (SPEC §8): it decides on requests by `Policy.ts` and keeps the states of callers. */
import { Clock, Context, Duration, Effect, Layer, Metric, Schedule } from "effect"
import * as Expiry from "../database/Expiry.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import * as CallerStates from "./CallerStates.ts"
import { type Caller, isKey } from "./CallerStates.ts"
import type { Limiter } from "./Limiter.ts"
import * as Policy from "./Policy.ts"
import { type RateLimitStore, sqlStore } from "./RateLimitStore.ts"
import * as SteadyClock from "./SteadyClock.ts"

export class RateLimiter extends Context.Service<RateLimiter, Limiter>()("petstore/RateLimiter") {
  /**
   * Counts in this process's memory, and writes the states of keys to the database in the background. Counts and bans
   * outlive the process, except for the last half second before a `kill -9`.
   */
  static readonly layer = Layer.effect(RateLimiter, Effect.suspend(() => Effect.flatMap(sqlStore, makeDurable)))

  /** Counts in this process's memory alone. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      const { service } = yield* make(SteadyClock.make(yield* Clock.Clock), () => {})
      return service
    })
  )

  /** Counts in the Redis at `REDIS_URL`, together with all other processes. */
  static readonly layerRedis = Layer.effect(
    RateLimiter,
    // Loads the Redis client only when it is needed.
    Effect.flatMap(Effect.promise(() => import("./redis/RedisRateLimiter.ts")), ({ make }) => make)
  )
}

/** Keeps the states of callers in memory, on a steady clock. `changed` gets each new state of a key. */
const make = Effect.fnUntraced(function*(
  steady: SteadyClock.SteadyClock,
  changed: (caller: Caller, state: Policy.State) => void
) {
  const callers = yield* CallerStates.make(Policy.endOf, steady.now)
  const none: Policy.State = {}
  const set = (caller: Caller, state: Policy.State, before: Policy.State): void => {
    // An unchanged state is set too: the map evicts the addresses with the oldest last request.
    callers.set(caller, state)
    if (state !== before && isKey(caller)) changed(caller, state)
  }
  const service = RateLimiter.of({
    charge: (caller, limits) =>
      Effect.sync(() => {
        const state = callers.get(caller) ?? none
        const now = steady.now()
        const { decision, next } = Policy.decide(state, limits, now, isKey(caller))
        set(caller, next, state)
        return Policy.shiftDecision(decision, steady.wallOffset(now))
      }),
    peek: (caller, limits) =>
      Effect.sync(() =>
        Policy.shiftDecision(Policy.peek(callers.get(caller) ?? none, limits, steady.now()), steady.wallOffset())
      ),
    unban: (caller) =>
      Effect.sync(() => {
        const state = callers.get(caller)
        if (state !== undefined) set(caller, Policy.unban(state, steady.now()), state)
      }),
    counting: Effect.succeed("own")
  })
  return { service, callers }
})

const writes = Metric.histogram("rate_limit_write_duration_seconds", {
  description: "Duration of writes of counts to the database.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
})

const makeDurable = Effect.fnUntraced(function*(store: RateLimitStore) {
  const steady = SteadyClock.make(yield* Clock.Clock)
  const changed = yield* WriteBehind.make({
    interval: "500 millis",
    write: (states: ReadonlyMap<Caller, Policy.State>) =>
      Effect.trackDuration(Effect.suspend(() => store.save(states, steady)), writes, Duration.toSeconds),
    // Memory is authoritative. The database copy is for restarts.
    warning: "Counts of requests cannot be kept in the database"
  })
  const { callers, service } = yield* make(steady, changed.set)
  for (const { caller, state, stepped } of yield* store.load(steady)) {
    callers.set(caller, state)
    if (Math.abs(stepped) >= SteadyClock.minStep) changed.set(caller, state)
  }

  // A step of the wall clock makes the ends in all rows wrong, and a process after the next boot would trust them.
  let savedOffset = steady.wallOffset()
  const saveAfterStep = Effect.gen(function*() {
    const offset = steady.wallOffset()
    if (offset === savedOffset) return
    savedOffset = offset
    let visited = 0
    for (const [caller, state] of callers.all()) {
      if (!isKey(caller)) return
      changed.set(caller, state)
      if (++visited % 10_000 === 0) yield* Effect.yieldNow
    }
  })
  yield* Effect.forkScoped(Effect.repeat(saveAfterStep, Schedule.spaced("10 seconds")))

  yield* Expiry.deleteExpired({
    table: "rate_limits",
    column: "ends_at",
    warning: "Counts that ended cannot be removed from the database"
  })
  return service
})
