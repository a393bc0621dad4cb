/**
 * Spreads the pages of lists over turns of the event loop. A page can take some milliseconds and hundreds of KB, and
 * leaves memory only after its turn: when it is sent, or its connection closes, such as when too many responses are
 * unread. Without this, 1,000 pages in one turn would exhaust the memory and end the process.
 *
 * Laws, whatever lists arrive, fail or are interrupted:
 * - A list goes on at once if no other list waits, and less than `turnMs` have passed since the first list of this turn
 *   asked or, after waiting, went on. Otherwise it waits for a later turn. A list that is interrupted or fails while it
 *   waits counts as waiting until it would go on.
 * - While lists wait, each new turn lets at least one of them go on.
 * - Keys with waiting lists alternate, one list at a time. A key's lists go on in their order.
 * - A waiting list fails with `ServiceUnavailable` once `maxMs` have passed since its handler began.
 */
import { Context, Duration, Effect } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { CurrentKey } from "../api/OperationMiddleware.ts"
import { callTimeout } from "../database/Deadline.ts"
import { overloaded } from "./ConcurrencyLimit.ts"

export const turnMs = 10

/** The timeout of a database read. A read and its wait for a turn may together take no longer. */
const maxMs = Duration.toMillis(callTimeout)

/** Waits for a turn that has time for a page. `beganAt` is when the handler began, by `performance.now()`. */
type Wait = (beganAt: number) => Effect.Effect<void, ServiceUnavailable, CurrentKey>

/** `onNextTurn` runs a function in the next turn, as `setImmediate` does. Tests replace both. */
export const make = (onNextTurn: (run: () => void) => void, now = () => performance.now()): Wait => {
  /** When this turn's time for lists ends, by `now()`. Undefined before the first list of a turn. */
  let endsAt: number | undefined
  /**
   * The list requests that wait, by the id of their API key and in their order, as functions that resume them. One that
   * is interrupted or fails keeps its place until its turn comes.
   */
  const waiting = new Map<string, Array<() => void>>()

  const startTurn = (): number => {
    onNextTurn(endTurn)
    return now() + turnMs
  }
  // Needs no catch: it only resumes fibers, which catch what they throw.
  const endTurn = (): void => {
    endsAt = undefined
    // A key that still has lists comes again after the other keys.
    for (const [key, lists] of waiting) {
      endsAt ??= startTurn()
      const next = lists.shift()
      waiting.delete(key)
      if (lists.length > 0) waiting.set(key, lists)
      next?.()
      if (now() >= endsAt) return
    }
  }
  const wait = (key: string) =>
    Effect.callback<void>((resume) => {
      // The function that is returned below has set `endsAt`. But the fiber can have yielded since, and `endTurn` can
      // have cleared it. Then start another turn, because nothing else would resume this list.
      endsAt ??= startTurn()
      const lists = waiting.get(key) ?? []
      lists.push(() => resume(Effect.void))
      waiting.set(key, lists)
    })
  return (beganAt) =>
    Effect.suspend(() => {
      endsAt ??= startTurn()
      if (waiting.size === 0 && now() < endsAt) return Effect.void
      const duration = Duration.millis(Math.max(0, beganAt + maxMs - now()))
      return CurrentKey.use(({ id }) => Effect.timeoutOrElse(wait(id), { duration, orElse: () => overloaded }))
    })
}

/**
 * Waits until a turn of the event loop has time for one more page. `PortServer.ts` provides it for all lists of a port.
 * By default, nothing waits: requests of `layerTest` have no sockets, and a test can run them on a `TestClock`.
 */
export const PageTurns = Context.Reference<Wait>("petstore/http/PageTurns", { defaultValue: () => () => Effect.void })
