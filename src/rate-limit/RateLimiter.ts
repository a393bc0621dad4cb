import { Clock, Context, Effect, Latch, Layer } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { evictOldest } from "../eviction/evictOldest.ts"
import * as Policy from "./Policy.ts"

/** An API key or a client's address (for IPv6, its /64), with its own counts. Only API keys can be banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** Where counts are: in this process, in Redis, or in this process while Redis fails. */
export type Counting = "own" | "shared" | "fallback"

/** Counts requests, and decides whether they are within the limits. Calls for addresses never fail. */
export class RateLimiter extends Context.Service<RateLimiter, {
  /** Counts one request, if it is allowed. Fails if the state of a key cannot be loaded. */
  charge(caller: Caller, limits: Policy.Limits): Effect.Effect<Policy.Decision, ServiceUnavailable>
  /** Returns what `charge` would decide, without counting. */
  peek(caller: Caller, limits: Policy.Limits): Effect.Effect<Policy.Decision, ServiceUnavailable>
  /** During a Redis outage, lifts the ban in this process only. */
  unban(caller: Caller): Effect.Effect<void, ServiceUnavailable>
  /** Where the counts are. */
  readonly counting: Effect.Effect<Counting>
}>()("petstore/RateLimiter") {
  /** Counts in the memory of this process. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      const states = yield* makeStates({ maxKeys: Infinity })
      return make({ ...states, find: states.get, load: () => Effect.void }, yield* Clock.Clock)
    })
  )
}

export interface CallerStates {
  /** Returns `undefined` if the caller's state must be loaded. */
  find(caller: Caller): Policy.State | undefined
  load(caller: Caller): Effect.Effect<unknown, ServiceUnavailable>
  set(caller: Caller, state: Policy.State, before: Policy.State): void
  /** Fails if the state of this caller must not change now. */
  readonly checkChange?: (caller: Caller) => ServiceUnavailable | undefined
}

/** Decides in memory. No call uses `Effect.gen`: each request passes `charge`. */
export const make = (
  { checkChange = () => undefined, find, load, set }: CallerStates,
  clock: Clock.Clock
): RateLimiter["Service"] => {
  const now = () => clock.currentTimeMillisUnsafe()
  /** Applies `use` to the caller's state, without a step between the load and the use. */
  const withState = <A>(
    caller: Caller,
    use: (state: Policy.State) => Effect.Effect<A, ServiceUnavailable>
  ): Effect.Effect<A, ServiceUnavailable> =>
    Effect.suspend(() => {
      const state = find(caller)
      return state === undefined ? Effect.andThen(load(caller), withState(caller, use)) : use(state)
    })
  const change = <A>(caller: Caller, decide: (state: Policy.State) => readonly [result: A, next: Policy.State]) =>
    withState(caller, (state) => {
      const failure = checkChange(caller)
      if (failure !== undefined) return Effect.fail(failure)
      const [result, next] = decide(state)
      set(caller, next, state)
      return Effect.succeed(result)
    })
  return {
    charge: (caller, limits) =>
      change(caller, (state) => {
        const { decision, next } = Policy.decide(state, limits, now(), isKey(caller))
        return [decision, next]
      }),
    peek: (caller, limits) => withState(caller, (state) => Effect.succeed(Policy.peek(state, limits, now()))),
    unban: (caller) => change(caller, (state) => [undefined, Policy.unban(state, now())]),
    counting: Effect.succeed("own")
  }
}

const maxAddresses = 100_000

const maxCheckedPerTurn = 10_000

const [minDeletionIntervalMs, maxDeletionIntervalMs] = [60_000, 3_600_000]

const none: Policy.State = {}

/**
 * The rate-limit states of callers, in memory. Addresses, and keys beyond `maxKeys`, are in an LRU cache, because one
 * client can use any number of addresses. States without further effect are deleted: at most once a minute, at least
 * once an hour, and only while there are states, so that idle tests with `TestClock` have nothing to wake.
 */
export const makeStates = Effect.fnUntraced(function*({ maxKeys }: { readonly maxKeys: number }) {
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
    /** Call this even if the state is unchanged: the call marks the caller as recently used. */
    set(caller: Caller, state: Policy.State): void {
      hasStates.openUnsafe()
      const [map, max] = isKey(caller) ? [keys, maxKeys] : [addresses, maxAddresses]
      map.delete(caller)
      map.set(caller, state)
      evictOldest(map, max)
    }
  }
})
