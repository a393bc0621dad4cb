/**
 * The rate limiter (SPEC §8): it decides on requests by `Policy.ts` and keeps the states of callers in memory.
 * `SqlRateLimiter.ts` also saves them in the database. `redis/RedisRateLimiter.ts` keeps them in Redis.
 */
import { Clock, Context, Effect, Layer } from "effect"
import * as CallerStates from "./CallerStates.ts"
import { type Caller, isKey } from "./CallerStates.ts"
import type { Limiter } from "./Limiter.ts"
import * as Policy from "./Policy.ts"
import * as SteadyClock from "./SteadyClock.ts"

export class RateLimiter extends Context.Service<RateLimiter, Limiter>()("petstore/RateLimiter") {
  /** Counts in this process's memory alone. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      const { service } = yield* make(SteadyClock.make(yield* Clock.Clock), () => {})
      return service
    })
  )
}

/** Keeps the states of callers in memory, on a steady clock. `changed` gets each new state of a key. */
export const make = Effect.fnUntraced(function*(
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
