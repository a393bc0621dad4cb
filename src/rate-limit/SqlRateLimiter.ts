/** Provides the rate limiter whose counts and bans outlive the process, in the tables of `migrations/`. */
import { Clock, Duration, Effect, Layer, Metric, Schedule } from "effect"
import * as Expiry from "../database/Expiry.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import { type Caller, isKey } from "./CallerStates.ts"
import type * as Policy from "./Policy.ts"
import * as RateLimiter from "./RateLimiter.ts"
import { sqlStore } from "./RateLimitStore.ts"
import * as SteadyClock from "./SteadyClock.ts"

const writes = Metric.histogram("rate_limit_write_duration_seconds", {
  description: "Duration of writes of counts to the database.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
})

const make = Effect.gen(function*() {
  const store = yield* sqlStore
  const steady = SteadyClock.make(yield* Clock.Clock)
  const changed = yield* WriteBehind.make({
    table: "rate_limits",
    interval: "500 millis",
    write: (states: ReadonlyMap<Caller, Policy.State>) =>
      Effect.trackDuration(Effect.suspend(() => store.save(states, steady)), writes, Duration.toSeconds),
    // Memory is authoritative. The database copy is for restarts.
    warning: "Counts of requests cannot be stored in the database"
  })
  const { callers, service } = yield* RateLimiter.make(steady, changed.set)
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
    warning: "Expired counts of requests cannot be deleted"
  })
  return service
})

/**
 * Counts in this process's memory, and writes the states of keys to the database in the background. Counts and bans
 * outlive the process, except for the last half second before a `kill -9`.
 */
export const layer = Layer.effect(RateLimiter.RateLimiter, make)
