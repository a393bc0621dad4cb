/** Who may make how many requests (SPEC §8): the rule of `rate-limit/Rule.ts`, and what callers used so far. */
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Limits } from "./api/Plans.ts"
import * as Rule from "./rate-limit/Rule.ts"
import { sqlStore, type StateStore } from "./rate-limit/StateStore.ts"

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
  let unsaved = new Map<string, Rule.State>()
  const { keys, service } = yield* make((caller, state) => unsaved.set(caller, state))
  for (const [caller, state] of yield* store.load(yield* Clock.currentTimeMillis)) keys.set(caller, state)

  const save = Effect.suspend(() => {
    const saving = unsaved
    unsaved = new Map()
    return saving.size === 0 ? Effect.void : Effect.onError(store.save(saving), () =>
      Effect.sync(() => {
        // Kept for the next time, unless there is something newer by now.
        unsaved = new Map([...saving, ...unsaved])
      }))
  })
  const remove = Effect.flatMap(Clock.currentTimeMillis, store.removeEnded)

  yield* Effect.addFinalizer(() => attempt(save))
  yield* Effect.forkScoped(Effect.repeat(attempt(save), Schedule.spaced("500 millis")))
  yield* Effect.forkScoped(Effect.repeat(attempt(remove), Schedule.spaced("10 minutes")))
  return service
})

/** The database may be gone for a while: the counts in memory are the ones that count. */
const attempt = (effect: Effect.Effect<void>): Effect.Effect<void> =>
  effect.pipe(
    Effect.timeout("5 seconds"),
    Effect.catchCause((cause) => Effect.logWarning("Counts of requests cannot be kept in the database", cause))
  )
