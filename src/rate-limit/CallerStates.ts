import { Clock, Effect, Schedule } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import * as Policy from "./Policy.ts"

/** Requests are charged to an API key, or to the client's address. Only keys can be banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** Bounds the memory for addresses, because a client can use any number of them. */
const maxAddresses = 100_000

const maxCheckedPerTurn = 10_000

const none: Policy.State = {}

/** The states in memory. Addresses are an LRU cache. Ended states are deleted once a minute. */
export const make = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const keys = new Map<Caller, Policy.State>()
  const addresses = new Map<Caller, Policy.State>()

  const deleteEnded = Effect.gen(function*() {
    const now = clock.currentTimeMillisUnsafe()
    for (const map of [keys, addresses]) {
      let checked = 0
      for (const [caller, state] of map) {
        if (Policy.endOf(state) <= now) map.delete(caller)
        if (++checked % maxCheckedPerTurn === 0) yield* Effect.yieldNow
      }
    }
  })
  yield* Effect.forkScoped(Effect.repeat(deleteEnded, Schedule.spaced("1 minute")))

  return {
    get: (caller: Caller): Policy.State => (isKey(caller) ? keys : addresses).get(caller) ?? none,
    set(caller: Caller, state: Policy.State): void {
      if (isKey(caller)) {
        keys.set(caller, state)
        return
      }
      // Insert at the end, so that the map's order is least recently used first.
      addresses.delete(caller)
      addresses.set(caller, state)
      evictOldest(addresses, maxAddresses)
    }
  }
})

export type CallerStates = Effect.Success<typeof make>
