/** A limiter that decides in memory, on states that may have to be loaded first. */
import { type Clock, Effect } from "effect"
import type * as Policy from "./Policy.ts"
import { type Call, type Caller, type Decide, makeLimiter, type RateLimiter, type Unavailable } from "./RateLimiter.ts"

/** The states of callers. Those of keys are in `KeyStates.ts`. */
interface CallerStates {
  /** Returns `undefined` if the caller's state must be loaded. */
  find(caller: Caller): Policy.State | undefined
  load(caller: Caller): Effect.Effect<unknown, Unavailable>
  set(caller: Caller, state: Policy.State, before: Policy.State): void
  /** Returns a failure if the state of this caller must not change now. */
  readonly checkChange?: (caller: Caller) => Unavailable | undefined
}

export const make = (
  { checkChange = () => undefined, find, load, set }: CallerStates,
  clock: Clock.Clock
): RateLimiter["Service"] => {
  /**
   * No other fiber runs between `find` and `set`, so the state is the current one. Hot path: avoids `Effect.gen`.
   */
  const run = <A>(caller: Caller, call: Call, decide: Decide<A>): Effect.Effect<A, Unavailable> =>
    Effect.suspend(() => {
      const state = find(caller)
      if (state === undefined) return Effect.andThen(load(caller), run(caller, call, decide))
      const failure = call.verb === "peek" ? undefined : checkChange(caller)
      if (failure !== undefined) return Effect.fail(failure)
      const [result, next] = decide(state, clock.currentTimeMillisUnsafe())
      if (call.verb !== "peek") set(caller, next, state)
      return Effect.succeed(result)
    })
  return makeLimiter(run, Effect.succeed("own"))
}
