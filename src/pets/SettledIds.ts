const minCheckIntervalMs = 1_000

type FoundId = Readonly<Record<"id" | "readAtMs", number>>

const none: FoundId = { id: 0, readAtMs: -Infinity }
const noWriters: ReadonlySet<unknown> = new Set()

/**
 * Finds settled ids: no transaction can still insert a pet below a settled id, so gaps below it can be cached. Ids come
 * from an ascending sequence, and a transaction locks the table for writing before it takes an id. So once a pet is
 * visible, only the transactions that hold this lock at that moment can insert lower ids. When these transactions have
 * ended, the pet's id is settled.
 */
export const make = (lifetimeMs: number, nowMs: () => number) => {
  let checkedAtMs = -Infinity
  let unchecked = none
  /** `writers` held the table lock at the last check. When all these transactions have ended, `found.id` is settled. */
  let candidate = { found: none, writers: noWriters }
  let settled = none

  /** Ids expire, because a database restored from a backup can insert pets below a settled id. */
  const isExpired = ({ readAtMs }: FoundId): boolean => readAtMs < nowMs() - lifetimeMs
  const higher = (current: FoundId, other: FoundId): FoundId =>
    other.id > current.id || isExpired(current) ? other : current

  return {
    current: (): number => isExpired(settled) ? 0 : settled.id,
    noteGap(id: number, readAtMs: number): void {
      unchecked = higher(unchecked, { id, readAtMs })
    },
    /**
     * Begins a check for settled ids, or returns `undefined` if none is due. Then read which transactions hold the
     * table lock, and pass them to the returned function.
     */
    beginCheck(): ((writers: ReadonlySet<unknown>) => void) | undefined {
      const startedAtMs = nowMs()
      if (unchecked === none || startedAtMs - checkedAtMs < minCheckIntervalMs) return undefined
      const [before, found] = [candidate, unchecked]
      checkedAtMs = startedAtMs
      unchecked = none
      return (writers) => {
        // If another check has finished since this check began, ignore this one: the other `writers` may be newer.
        if (candidate !== before) return
        if (writers.isDisjointFrom(before.writers)) settled = higher(settled, before.found)
        candidate = { found, writers }
      }
    }
  }
}
