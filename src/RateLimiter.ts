/** Who may make how many requests (SPEC §8): the rule of `rate-limit/Rule.ts`, and what callers used so far. */
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Limits } from "./api/Plans.ts"
import * as Rule from "./rate-limit/Rule.ts"
import { sqlStore, type StateStore } from "./rate-limit/StateStore.ts"
import * as WriteBehind from "./WriteBehind.ts"

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
  /**
   * Counts in this process's memory, and writes what becomes of keys behind to the database: counts and bans outlive the
   * process, but for the last half second before a `kill -9`.
   */
  static readonly layer = Layer.effect(RateLimiter, Effect.suspend(() => Effect.flatMap(sqlStore, makeDurable)))

  /** Counts in this process's memory alone. */
  static readonly layerMemory = Layer.effect(
    RateLimiter,
    Effect.suspend(() => Effect.map(make(() => {}), ({ service }) => service))
  )
}

/** Addresses are anybody's to make up: only so many are remembered. Keys are as many as were issued. */
const addressesKept = 100_000

const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** The states of callers, in memory. `changed` is told of each new state of a key. */
const make = Effect.fnUntraced(function*(changed: (caller: Caller, state: Rule.State) => void) {
  const keys = new Map<string, Rule.State>()
  const addresses = new Map<string, Rule.State>()
  const statesOf = (caller: Caller) => isKey(caller) ? keys : addresses

  const set = (caller: Caller, state: Rule.State): void => {
    if (isKey(caller)) {
      keys.set(caller, state)
      changed(caller, state)
    } else {
      // Insertion order is the order of last use, so that the first is the one to forget.
      addresses.delete(caller)
      addresses.set(caller, state)
      if (addresses.size > addressesKept) addresses.delete(addresses.keys().next().value ?? caller)
    }
  }

  // What no longer counts is forgotten: an idle caller costs no memory, and loses nothing.
  const sweep = Effect.map(Clock.currentTimeMillis, (now) => {
    for (const states of [keys, addresses]) {
      for (const [caller, state] of states) if (Rule.endOf(state) <= now) states.delete(caller)
    }
  })
  yield* Effect.forkScoped(Effect.repeat(sweep, Schedule.spaced("1 minute")))

  const service = RateLimiter.of({
    charge: (caller, limits) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        const { decision, next } = Rule.decide(statesOf(caller).get(caller) ?? {}, limits, now, isKey(caller))
        set(caller, next)
        return decision
      }),
    peek: (caller, limits) =>
      Effect.map(Clock.currentTimeMillis, (now) => Rule.peek(statesOf(caller).get(caller) ?? {}, limits, now)),
    unban: (caller) =>
      Effect.sync(() => {
        const state = statesOf(caller).get(caller)
        if (state !== undefined) set(caller, Rule.unban(state))
      })
  })
  return { service, keys }
})

const makeDurable = Effect.fnUntraced(function*(store: StateStore) {
  const states = yield* WriteBehind.make({
    interval: "500 millis",
    write: store.save,
    // The counts in memory are the ones that count.
    warning: "Counts of requests cannot be kept in the database"
  })
  const { keys, service } = yield* make(states.set)
  for (const [caller, state] of yield* store.load(yield* Clock.currentTimeMillis)) keys.set(caller, state)

  const removeEnded = Effect.flatMap(Clock.currentTimeMillis, store.removeEnded).pipe(
    Effect.timeout("5 seconds"),
    Effect.catchCause((cause) => Effect.logWarning("Counts that ended cannot be removed from the database", cause))
  )
  yield* Effect.forkScoped(Effect.repeat(removeEnded, Schedule.spaced("10 minutes")))
  return service
})
