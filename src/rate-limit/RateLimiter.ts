/**
 * The rate limiter (SPEC §8): it decides on requests by `Policy.ts` and keeps the states of callers in memory.
 * `SqlRateLimiter.ts` also saves them in the database. `RedisRateLimiter.ts` keeps them in Redis.
 */
import { Clock, Context, Effect, Layer } from "effect"
import type { Limits } from "../api/Plans.ts"
import * as CallerStates from "./CallerStates.ts"
import { type Caller, isKey } from "./CallerStates.ts"
import * as Policy from "./Policy.ts"

/** The counts that decide: this process's own, those in Redis, or its own because Redis does not respond. */
export type Counting = "own" | "shared" | "fallback"

export class RateLimiter extends Context.Service<RateLimiter, {
  /** Charges one request to `caller` if its limits allow the request. */
  charge(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>

  /** Returns what `caller` has left, without a charge. */
  peek(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>

  /**
   * Lifts the ban of `caller`, if there is one, in the counts that it returns. With `fallback` the ban is lifted in
   * this process alone, and Redis still has it.
   */
  unban(caller: Caller): Effect.Effect<Counting>

  readonly counting: Effect.Effect<Counting>
}>()("petstore/RateLimiter") {
  /** Counts in this process's memory alone. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      return make(yield* CallerStates.make, yield* Clock.Clock, () => {})
    })
  )
}

/** Counts in `callers`. `changed` gets each new state of a key. */
export const make = (
  callers: CallerStates.CallerStates,
  clock: Clock.Clock,
  changed: (caller: Caller, state: Policy.State) => void
): RateLimiter["Service"] => {
  const set = (caller: Caller, state: Policy.State, before: Policy.State): void => {
    // An unchanged state is set too: the map evicts the addresses with the oldest last request.
    callers.set(caller, state)
    if (state !== before && isKey(caller)) changed(caller, state)
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
        return "own"
      }),
    counting: Effect.succeed("own")
  }
}
