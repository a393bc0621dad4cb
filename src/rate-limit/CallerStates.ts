/** What is remembered of each caller, in this process's memory. */
import { Effect, Schedule } from "effect"
import { evictOldest } from "../collections/evictOldest.ts"

/** Whom a request is charged to: an API key, or a client's address. Only keys are banned. */
export type Caller = `key:${string}` | `address:${string}`

export const isKey = (caller: Caller): boolean => caller.startsWith("key:")

/** Addresses are anybody's to make up: only so many are remembered. Keys are as many as were issued. */
const addressesKept = 100_000

/** Callers looked at before others get their turn. */
const sweptAtOnce = 10_000

/**
 * A map of callers for as long as the scope lasts. Of addresses it forgets those that called longest ago when there are
 * too many; of all callers those that `endOf`, on the clock of `time`, says nothing counts of any more.
 */
export const make = Effect.fnUntraced(function*<A>(
  endOf: (value: A) => number,
  time: () => number
) {
  const keys = new Map<Caller, A>()
  const addresses = new Map<Caller, A>()
  const mapOf = (caller: Caller) => isKey(caller) ? keys : addresses

  const sweep = Effect.gen(function*() {
    const now = time()
    for (const map of [keys, addresses]) {
      let looked = 0
      for (const [caller, value] of map) {
        if (endOf(value) <= now) map.delete(caller)
        if (++looked % sweptAtOnce === 0) yield* Effect.yieldNow
      }
    }
  })
  yield* Effect.forkScoped(Effect.repeat(sweep, Schedule.spaced("1 minute")))

  return {
    /** The keys first. */
    *all(): Generator<readonly [Caller, A]> {
      yield* keys
      yield* addresses
    },
    /** Changes what is remembered of each. */
    update(change: (value: A) => A): void {
      for (const map of [keys, addresses]) {
        for (const [caller, value] of map) map.set(caller, change(value))
      }
    },
    get: (caller: Caller): A | undefined => mapOf(caller).get(caller),
    set(caller: Caller, value: A): void {
      if (isKey(caller)) {
        keys.set(caller, value)
        return
      }
      // Insertion order is the order of last use.
      addresses.delete(caller)
      addresses.set(caller, value)
      evictOldest(addresses, addressesKept)
    }
  }
})
