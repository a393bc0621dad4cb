/** Who may make how many requests (SPEC §8): the rule of `rate-limit/Rule.ts`, and what callers used so far. */
import { Clock, Context, Effect, Layer } from "effect"
import type { Limits } from "./api/Plans.ts"
import * as Rule from "./rate-limit/Rule.ts"

/** Whom a request is charged to: an API key, or a client's address. Only keys are banned. */
export type Caller = `key:${string}` | `address:${string}`

export class RateLimiter extends Context.Service<RateLimiter, {
  /** Charges one request to `caller`, if its limits admit it. */
  charge(caller: Caller, limits: Limits): Effect.Effect<Rule.Decision>

  /** What `caller` has left, without a charge. */
  peek(caller: Caller, limits: Limits): Effect.Effect<Rule.Decision>

  /** Lifts the ban of `caller`, if there is one. */
  unban(caller: Caller): Effect.Effect<void>
}>()("petstore/RateLimiter") {
  /** Counts in this process's memory. */
  static readonly layerMemory = Layer.sync(RateLimiter, () => {
    const keys = new Map<Caller, Rule.State>()
    const addresses = new Map<Caller, Rule.State>()
    const isKey = (caller: Caller) => caller.startsWith("key:")
    const statesOf = (caller: Caller) => isKey(caller) ? keys : addresses
    return RateLimiter.of({
      charge: (caller, limits) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          const states = statesOf(caller)
          const { decision, next } = Rule.decide(states.get(caller) ?? {}, limits, now, isKey(caller))
          // Insertion order is the order of last use, so that the first is the one to forget.
          states.delete(caller)
          states.set(caller, next)
          if (addresses.size > addressesKept) addresses.delete(addresses.keys().next().value ?? caller)
          return decision
        }),
      peek: (caller, limits) =>
        Effect.map(Clock.currentTimeMillis, (now) => Rule.peek(statesOf(caller).get(caller) ?? {}, limits, now)),
      unban: (caller) =>
        Effect.sync(() => {
          const state = statesOf(caller).get(caller)
          if (state !== undefined) statesOf(caller).set(caller, Rule.unban(state))
        })
    })
  })
}

/** Addresses are anybody's to make up: only so many are remembered. Keys are as many as were issued. */
const addressesKept = 100_000
