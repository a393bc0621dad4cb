import { Clock, Context, Effect, Layer } from "effect"
import type { Limits } from "../api/Plans.ts"
import * as CallerStates from "./CallerStates.ts"
import { type Caller, isKey } from "./CallerStates.ts"
import * as Policy from "./Policy.ts"

/** `own`: in this process, without Redis. `shared`: in Redis. `fallback`: in this process while Redis is down. */
export type Counting = "own" | "shared" | "fallback"

export class RateLimiter extends Context.Service<RateLimiter, {
  charge(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>
  peek(caller: Caller, limits: Limits): Effect.Effect<Policy.Decision>
  /** Returns where it lifted the ban. After `fallback`, the ban is still in Redis. */
  unban(caller: Caller): Effect.Effect<Counting>
  readonly counting: Effect.Effect<Counting>
}>()("petstore/RateLimiter") {
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      return make(yield* CallerStates.make, yield* Clock.Clock, () => {})
    })
  )
}

export const make = (
  callers: CallerStates.CallerStates,
  clock: Clock.Clock,
  onKeyChange: (caller: Caller, state: Policy.State) => void
): RateLimiter["Service"] => {
  const set = (caller: Caller, state: Policy.State, before: Policy.State): void => {
    // Set even an unchanged state, because that marks the address as recently used.
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
        return "own"
      }),
    counting: Effect.succeed("own")
  }
}
