/** The states of callers in this process's memory. */
import { Clock, Effect, Schedule } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"
import * as Policy from "./Policy.ts"

/** The party that a request is charged to: an API key, or a client's address. Only keys are banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** The maximum of addresses. Clients can use any number of addresses, but only as many keys as operators issue. */
const maxAddresses = 100_000

const maxCheckedPerTurn = 10_000

const none: Policy.State = {}

/**
 * A map of callers for as long as the scope lasts. When there are too many addresses, it evicts those with the oldest
 * last request. Once a minute it deletes callers whose state has ended.
 */
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
      // The insertion order of the map is the order of last requests.
      addresses.delete(caller)
      addresses.set(caller, state)
      evictOldest(addresses, maxAddresses)
    }
  }
})

export type CallerStates = Effect.Success<typeof make>
