import { Clock, Context, Effect, Latch, Layer } from "effect"
import { evictOldest } from "../eviction/evictOldest.ts"
import * as Policy from "./Policy.ts"

/** An API key or a client's address (for IPv6, its /64), with its own counts. Only API keys can be banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/**
 * Where requests are counted: in this process (`own`), in Redis (`shared`), or in this process while Redis fails
 * (`fallback`, also if only some masters of a Redis cluster fail: then only their callers are counted here).
 */
export type Counting = "own" | "shared" | "fallback"

/** The failure of a call for a key whose state cannot be loaded or saved at the moment. */
export interface Unavailable {
  readonly message: string
}

/**
 * Counts requests, and decides whether they are within the limits. Calls for addresses never fail. `KeyStates.ts`
 * implements it (`SavedStates.ts` has the layer), and `RedisRateLimiter.ts` for processes that share a Redis.
 * `layerMemory` is for tests, and for failed authentications of operators.
 */
export class RateLimiter extends Context.Service<RateLimiter, {
  /**
   * Decides on one request, and counts it: in both windows if it is allowed, or else among the rejections of its key,
   * unless the key is banned. Fails if the state of a key cannot be loaded, or cannot change because too many states of
   * other keys are unsaved.
   */
  charge(caller: Caller, limits: Policy.Limits): Effect.Effect<Policy.Decision, Unavailable>
  /** Tells whether `charge` would allow a request now, with the windows before it. Counts nothing and begins no ban. */
  peek(caller: Caller, limits: Policy.Limits): Effect.Effect<Policy.Decision, Unavailable>
  /** Lifts the ban of a caller: for all processes while they count in Redis. Otherwise, others can keep the ban. */
  unban(caller: Caller): Effect.Effect<void, Unavailable>
  /** Where requests are counted now. */
  readonly counting: Effect.Effect<Counting>
}>()("rate-limit/RateLimiter") {
  /** Counts in the memory of this process. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const { get, set } = yield* makeStates({ maxKeys: Infinity, none: Policy.noCounts })
      return makeLimiter((caller, { verb }, decide) =>
        Effect.sync(() => {
          const [result, next] = decide(get(caller), clock.currentTimeMillisUnsafe())
          if (verb !== "peek") set(caller, next)
          return result
        }), Effect.succeed("own"))
    })
  )
}

/** A call of a limiter. A peek leaves the state of its caller as it is. */
export type Call = { readonly verb: "charge" | "peek"; readonly limits: Policy.Limits } | { readonly verb: "unban" }

/** Returns the result of a call, and the state after it. `now` is in epoch milliseconds. */
export type Decide<A> = (state: Policy.State, now: number) => readonly [result: A, next: Policy.State]

/** Makes a limiter. `run` applies the decision of a call to the state of its caller, wherever that state is. */
export const makeLimiter = (
  run: <A>(caller: Caller, call: Call, decide: Decide<A>) => Effect.Effect<A, Unavailable>,
  counting: Effect.Effect<Counting>
): RateLimiter["Service"] => ({
  charge: (caller, limits) =>
    run(caller, { verb: "charge", limits }, (state, now) => {
      const { decision, next } = Policy.decide(state, limits, now, isKey(caller))
      return [decision, next]
    }),
  peek: (caller, limits) =>
    run(caller, { verb: "peek", limits }, (state, now) => [Policy.peek(state, limits, now), state]),
  unban: (caller) => run(caller, { verb: "unban" }, (state, now) => [undefined, Policy.unban(state, now)]),
  counting
})

const maxAddresses = 100_000

const maxCheckedPerTurn = 10_000

/**
 * The rate-limit states of callers, in memory: an LRU cache of at most `maxKeys` keys (0: addresses only), and another
 * one of addresses, so that a client with many addresses cannot evict the states of keys. Once a minute, states without
 * further effect are deleted. While there are no states, no timer runs, so that `TestClock` in a test wakes nothing.
 */
export const makeStates = Effect.fnUntraced(function*<State extends Policy.State>(
  { maxKeys, none }: { readonly maxKeys: number; readonly none: State }
) {
  const clock = yield* Clock.Clock
  const keys = new Map<Caller, State>()
  const addresses = new Map<Caller, State>()

  const hasStates = yield* Latch.make()

  const deleteEnded = Effect.gen(function*() {
    yield* hasStates.await
    yield* Effect.sleep("1 minute")
    const now = clock.currentTimeMillisUnsafe()
    for (const map of [keys, addresses]) {
      let checked = 0
      for (const [caller, state] of map) {
        if (Policy.endOf(state) <= now) map.delete(caller)
        if (++checked % maxCheckedPerTurn === 0) yield* Effect.yieldNow
      }
    }
    if (keys.size + addresses.size === 0) hasStates.closeUnsafe()
  })
  yield* Effect.forkScoped(Effect.forever(deleteEnded))

  return {
    get: (caller: Caller): State => (isKey(caller) ? keys : addresses).get(caller) ?? none,
    /** Call this even if the state is unchanged: the call marks the caller as recently used. */
    set(caller: Caller, state: State): void {
      hasStates.openUnsafe()
      const [map, max] = isKey(caller) ? [keys, maxKeys] : [addresses, maxAddresses]
      map.delete(caller)
      map.set(caller, state)
      evictOldest(map, max)
    }
  }
})
