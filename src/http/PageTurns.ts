/**
 * Spreads the pages of lists over turns of the event loop. A page can take 403 KB and some milliseconds, and leaves
 * memory only after its turn: when it is sent, or its connection is closed because too many responses are unread.
 * Without this, 1,000 pages in one turn end the process.
 *
 * Laws, whatever lists arrive, fail or are interrupted:
 * - A list goes on if the lists before it in its turn have taken less than `turnMs`. Otherwise it waits for a later turn.
 * - While lists wait, each turn lets at least one of them go on.
 * - Keys with waiting lists take turns, one list at a time. A key's lists go on in their order.
 */
import { Context, Effect } from "effect"
import { CurrentKey } from "../api/OperationMiddleware.ts"

export const turnMs = 10

/** `now` and `onNextTurn` are what tests replace. */
export const make = (
  now = () => performance.now(),
  onNextTurn: (run: () => void) => void = setImmediate
): Effect.Effect<void, never, CurrentKey> => {
  /** When this turn has no more time for lists, in milliseconds of `now`. Undefined before the first one. */
  let endsAt: number | undefined
  /** The waiting lists of each key, by its id. An interrupted one stays until its turn, and then does nothing. */
  const waiting = new Map<string, Array<() => void>>()

  const wait = (key: string) =>
    Effect.callback<void>((resume) => {
      const lists = waiting.get(key) ?? []
      lists.push(() => resume(Effect.void))
      waiting.set(key, lists)
    })
  const startTurn = (): number => {
    onNextTurn(endTurn)
    return now() + turnMs
  }
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
  return Effect.suspend(() => {
    endsAt ??= startTurn()
    return now() < endsAt ? Effect.void : CurrentKey.use(({ id }) => wait(id))
  })
}

/** Waits until its turn has time for one more page. All lists of the process share it. */
export const PageTurns = Context.Reference<Effect.Effect<void, never, CurrentKey>>("petstore/http/PageTurns", {
  defaultValue: make
})
