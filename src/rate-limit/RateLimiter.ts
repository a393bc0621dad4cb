import { Clock, Context, Effect, Latch, Layer } from "effect"
import type { Limits } from "../api/Plans.ts"
import { evictOldest } from "../eviction/evictOldest.ts"
import * as Policy from "./Policy.ts"

/** An API key or a client's address (for IPv6, its /64), with its own counts. Only API keys can be banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** Where counts are: in this process, in Redis, or in this process while Redis fails. */
export type Counting = "own" | "shared" | "fallback"

/** Counts requests, and decides whether they are within the limits. */
export class RateLimiter extends Context.Service<RateLimiter, {
  /** Counts one request, if it is allowed. */
  charge(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>
  /** Returns what `charge` would decide, without counting. */
  peek(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>
  /** During a Redis outage, lifts the ban in this process only. */
  unban(caller: Caller): Effect.Effect<void>
  /** Where the counts are. */
  readonly counting: Effect.Effect<Counting>
}>()("petstore/RateLimiter") {
  /** Counts in the memory of this process. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      return make(yield* makeStates, yield* Clock.Clock, () => {})
    })
  )
}

export const make = (
  callers: CallerStates,
  clock: Clock.Clock,
  onKeyChange: (caller: Caller, state: Policy.State) => void
): RateLimiter["Service"] => {
  const set = (caller: Caller, state: Policy.State, before: Policy.State): void => {
    // Call `callers.set` even if the state is unchanged: the call marks an address as recently used (LRU).
    callers.set(caller, state)
    if (state !== before && isKey(caller)) onKeyChange(caller, state)
  }
  return {
    charge: (caller, limits) =>
      Effect.sync(() => {
        const state = callers.get(caller)
        const { decision, next } = Policy.decide(state, limits, clock.currentTimeMillisUnsafe(), isKey(caller))
        set(caller, next, state)
        return decision
      }),
    peek: (caller, limits) =>
      Effect.sync(() => Policy.peek(callers.get(caller), limits, clock.currentTimeMillisUnsafe())),
    unban: (caller) =>
      Effect.sync(() => {
        const state = callers.get(caller)
        set(caller, Policy.unban(state, clock.currentTimeMillisUnsafe()), state)
      }),
    counting: Effect.succeed("own")
  }
}

const maxAddresses = 100_000

const maxCheckedPerTurn = 10_000

const [minDeletionIntervalMs, maxDeletionIntervalMs] = [60_000, 3_600_000]

const none: Policy.State = {}

/**
 * The rate-limit states of callers, in memory. Addresses are in an LRU cache, because one client can use any number of
 * addresses. States without further effect are deleted: at most once a minute, at least once an hour, and only while
 * there are states, so that idle tests with `TestClock` have nothing to wake.
 */
export const makeStates = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const keys = new Map<Caller, Policy.State>()
  const addresses = new Map<Caller, Policy.State>()

  const hasStates = yield* Latch.make()

  const deleteEnded = Effect.gen(function*() {
    yield* hasStates.await
    const now = clock.currentTimeMillisUnsafe()
    let firstEnd = Infinity
    for (const map of [keys, addresses]) {
      let checked = 0
      for (const [caller, state] of map) {
        const end = Policy.endOf(state)
        if (end <= now) map.delete(caller)
        else firstEnd = Math.min(firstEnd, end)
        if (++checked % maxCheckedPerTurn === 0) yield* Effect.yieldNow
      }
    }
    if (keys.size + addresses.size === 0) hasStates.closeUnsafe()
    yield* Effect.sleep(Math.min(Math.max(firstEnd - now, minDeletionIntervalMs), maxDeletionIntervalMs))
  })
  yield* Effect.forkScoped(Effect.forever(deleteEnded))

  return {
    get: (caller: Caller): Policy.State => (isKey(caller) ? keys : addresses).get(caller) ?? none,
    set(caller: Caller, state: Policy.State): void {
      hasStates.openUnsafe()
      if (isKey(caller)) return void keys.set(caller, state)
      addresses.delete(caller)
      addresses.set(caller, state)
      evictOldest(addresses, maxAddresses)
    }
  }
})

export type CallerStates = Effect.Success<typeof makeStates>
