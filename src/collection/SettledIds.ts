const minCheckIntervalMs = 1_000

type FoundId = Readonly<Record<"id" | "readAtMs", number>>

const none: FoundId = { id: 0, readAtMs: -Infinity }
const noWriters: ReadonlySet<unknown> = new Set()

/**
 * An id is settled when no transaction can still insert an item with a lower id. Gaps below a settled id can be cached.
 *
 * Ids come from an ascending sequence. Before a transaction takes an id, it takes PostgreSQL's shared `ROW EXCLUSIVE`
 * lock of the table. So when an item is visible, each transaction that took a lower id has ended or holds this lock.
 * The item's id is settled once all transactions that held the lock at that moment have ended. Checks may overlap, and
 * end in any order: a check is compared with one that had ended before it began, so its transactions are newer.
 */
export const make = (lifetimeMs: number, nowMs: () => number) => {
  let checkedAtMs = -Infinity
  let unchecked = none
  let candidate = { found: none, writers: noWriters }
  let settled = none

  /** Ids expire, because a database restored from a backup can fill gaps below them. */
  const isExpired = ({ readAtMs }: FoundId): boolean => readAtMs < nowMs() - lifetimeMs
  const higher = (current: FoundId, other: FoundId): FoundId =>
    other.id > current.id || isExpired(current) ? other : current

  return {
    current: (): number => isExpired(settled) ? 0 : settled.id,
    noteGap(id: number, readAtMs: number): void {
      unchecked = higher(unchecked, { id, readAtMs })
    },
    /**
     * Begins a check for newly settled ids if one is due. Then read which transactions hold the table lock, and pass
     * them to the returned function.
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
