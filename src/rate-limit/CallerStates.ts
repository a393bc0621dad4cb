/** The states of callers in this process's memory. */
import { Effect, Schedule } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"

/** The party that a request is charged to: an API key, or a client's address. Only keys are banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** The maximum of addresses. Clients can use any number of addresses, but only as many keys as operators issue. */
const maxAddresses = 100_000

/** The number of callers that are checked before other work gets a turn. */
const maxCheckedPerTurn = 10_000

/**
 * A map of callers for as long as the scope lasts. When there are too many addresses, it evicts those with the oldest
 * last request. Once a minute it deletes callers whose state has ended, by `endOf` and the clock of `time`.
 */
export const make = Effect.fnUntraced(function*<A>(
  endOf: (value: A, caller: Caller) => number,
  time: () => number
) {
  const keys = new Map<Caller, A>()
  const addresses = new Map<Caller, A>()
  const mapOf = (caller: Caller) => isKey(caller) ? keys : addresses

  const deleteEnded = Effect.gen(function*() {
    const now = time()
    for (const map of [keys, addresses]) {
      let checked = 0
      for (const [caller, value] of map) {
        if (endOf(value, caller) <= now) map.delete(caller)
        if (++checked % maxCheckedPerTurn === 0) yield* Effect.yieldNow
      }
    }
  })
  yield* Effect.forkScoped(Effect.repeat(deleteEnded, Schedule.spaced("1 minute")))

  return {
    /** All callers, keys first. */
    *all(): Generator<readonly [Caller, A]> {
      yield* keys
      yield* addresses
    },
    /** Changes the state of every caller. */
    update(change: (value: A, caller: Caller) => A): void {
      for (const map of [keys, addresses]) {
        for (const [caller, value] of map) map.set(caller, change(value, caller))
      }
    },
    get: (caller: Caller): A | undefined => mapOf(caller).get(caller),
    set(caller: Caller, value: A): void {
      if (isKey(caller)) {
        keys.set(caller, value)
        return
      }
      // The insertion order of the map is the order of last requests.
      addresses.delete(caller)
      addresses.set(caller, value)
      evictOldest(addresses, maxAddresses)
    }
  }
})

export type CallerStates<A> = Effect.Success<ReturnType<typeof make<A>>>
