const minCheckIntervalMs = 1_000

type FoundId = Readonly<Record<"id" | "readAtMs", number>>

const none: FoundId = { id: 0, readAtMs: -Infinity }
const noWriters: ReadonlySet<unknown> = new Set()

/**
 * An id is settled once no transaction can still insert an item with a lower id of the sequence. Gaps below a settled
 * id can be cached.
 *
 * Ids come from an ascending sequence with `CACHE 1`. Before a transaction takes an id, it takes PostgreSQL's lock
 * `ROW EXCLUSIVE` of the table, which many transactions can hold at once. Let an item be visible to a lookup. Then each
 * transaction that took a lower id has either ended, or still holds the lock. So the item's id is settled once all
 * transactions that hold the lock after the lookup have ended.
 *
 * A check (`beginCheck`) reads which transactions hold the lock: the writers. One id of each stage is kept:
 * 1. `unchecked`: a lookup found the id above a gap (`noteGap`), and no check has begun since then.
 * 2. `candidate`: a check that began after the lookup has read the `writers`.
 * 3. `settled`: a later check, which began after that check had ended, found none of its writers.
 *
 * `CollectionCache.beginLookup` notes gaps, and `SqlCollection` runs the checks before it reads pages (`findWriters`).
 */
export const make = (lifetimeMs: number, nowMs: () => number) => {
  let checkedAtMs = -Infinity
  let unchecked = none
  let candidate = { found: none, writers: noWriters }
  let settled = none

  /**
   * Whether an id has expired, `lifetimeMs` after the lookup that found it. Ids expire because a sequence that is set
   * back, as by a restored backup, gives ids again, which fill gaps below a settled id.
   */
  const isExpired = ({ readAtMs }: FoundId): boolean => readAtMs < nowMs() - lifetimeMs
  const higher = (current: FoundId, other: FoundId): FoundId =>
    other.id > current.id || isExpired(current) ? other : current

  return {
    current: (): number => isExpired(settled) ? 0 : settled.id,
    noteGap(id: number, readAtMs: number): void {
      unchecked = higher(unchecked, { id, readAtMs })
    },
    /**
     * Begins a check for newly settled ids. Returns `undefined` if no gap was noted since the last check began, or if
     * the last check began less than a second ago. Otherwise, the caller reads which transactions hold the table's
     * lock, and passes them to the returned function.
     */
    beginCheck(): ((writers: ReadonlySet<unknown>) => void) | undefined {
      const startedAtMs = nowMs()
      if (unchecked === none || startedAtMs - checkedAtMs < minCheckIntervalMs) return undefined
      const [before, found] = [candidate, unchecked]
      checkedAtMs = startedAtMs
      unchecked = none
      return (writers) => {
        if (writers.isDisjointFrom(before.writers)) settled = higher(settled, before.found)
        candidate = { found, writers }
      }
    }
  }
}
