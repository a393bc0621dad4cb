/** The operations of the rate limiter, which each of its implementations provides. */
import type { Effect } from "effect"
import type { Limits } from "../api/Plans.ts"
import type { Caller } from "./CallerStates.ts"
import type { Decision } from "./Policy.ts"

export interface Limiter {
  /** Charges one request to `caller` if its limits allow the request. */
  charge(caller: Caller, limits: Limits): Effect.Effect<Decision>

  /** Returns what `caller` has left, without a charge. */
  peek(caller: Caller, limits: Limits): Effect.Effect<Decision>

  /** Lifts the ban of `caller`, if there is one. */
  unban(caller: Caller): Effect.Effect<void>

  /** Which counts decide: this process's own, those in Redis, or its own because Redis does not respond. */
  readonly counting: Effect.Effect<"own" | "shared" | "fallback">
}
