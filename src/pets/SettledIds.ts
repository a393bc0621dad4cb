const minCheckIntervalMs = 1_000

interface FoundId {
  readonly id: number
  readonly readAtMs: number
}

const none: FoundId = { id: 0, readAtMs: -Infinity }

/**
 * Finds settled ids: no transaction can still insert a pet below a settled id, so gaps below it can be cached. Ids come
 * from an ascending sequence, and a transaction locks the table for writing before it takes an id. So once a pet is
 * visible, only the transactions that hold this lock at that moment can insert lower ids. When these transactions have
 * ended, the pet's id is settled.
 */
export class SettledIds {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  #checkedAtMs = -Infinity
  #unchecked = none
  /** `writers` held the table lock at the last check. When all these transactions have ended, `found.id` is settled. */
  #candidate: { readonly found: FoundId; readonly writers: ReadonlySet<unknown> } = { found: none, writers: new Set() }
  #settled = none

  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
  }

  current(): number {
    return this.#isExpired(this.#settled) ? 0 : this.#settled.id
  }

  noteGap(id: number, readAtMs: number): void {
    this.#unchecked = this.#higher(this.#unchecked, { id, readAtMs })
  }

  /**
   * Begins a check, or returns `undefined` if no check is due. After this call, read which transactions hold the table
   * lock, and pass these `writers` to the returned function.
   */
  beginCheck(): ((writers: ReadonlySet<unknown>) => void) | undefined {
    const nowMs = this.#nowMs()
    if (this.#unchecked === none || nowMs - this.#checkedAtMs < minCheckIntervalMs) return undefined
    const [candidate, found] = [this.#candidate, this.#unchecked]
    this.#checkedAtMs = nowMs
    this.#unchecked = none
    return (writers) => {
      // If another check has finished since this check began, ignore this one: the other `writers` may be newer.
      if (this.#candidate !== candidate) return
      if (writers.isDisjointFrom(candidate.writers)) this.#settled = this.#higher(this.#settled, candidate.found)
      this.#candidate = { found, writers }
    }
  }

  /** Ids expire, because a database restored from a backup can insert pets below a settled id. */
  #isExpired({ readAtMs }: FoundId): boolean {
    return readAtMs < this.#nowMs() - this.#lifetimeMs
  }

  #higher(current: FoundId, other: FoundId): FoundId {
    return other.id > current.id || this.#isExpired(current) ? other : current
  }
}
