const minCheckIntervalMs = 1_000

interface FoundId {
  readonly id: number
  readonly readAtMs: number
}

const none: FoundId = { id: 0, readAtMs: -Infinity }

/**
 * Finds an id below which no transaction can still insert a pet, so that the gaps below it can be cached.
 *
 * The sequence ascends, and a transaction locks the table from before it takes an id until its pet is visible. So once
 * a pet is visible, only the transactions that hold the lock at that time can still insert a lower id. When they have
 * ended, the gaps below that pet are final.
 */
export class SettledIds {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  #checkedAtMs = -Infinity
  /** The highest id above a gap that was found since the last check. */
  #unchecked = none
  /** `found` gets settled once the transactions that held the lock at the last check (`writers`) have ended. */
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

  /** At most once a second, returns a function to call with the transactions that hold the lock now. */
  beginCheck(): ((writers: ReadonlySet<unknown>) => void) | undefined {
    const nowMs = this.#nowMs()
    if (this.#unchecked === none || nowMs - this.#checkedAtMs < minCheckIntervalMs) return undefined
    const [candidate, found] = [this.#candidate, this.#unchecked]
    this.#checkedAtMs = nowMs
    this.#unchecked = none
    return (writers) => {
      // Another check ended meanwhile and may have seen later writers.
      if (this.#candidate !== candidate) return
      if (writers.isDisjointFrom(candidate.writers)) this.#settled = this.#higher(this.#settled, candidate.found)
      this.#candidate = { found, writers }
    }
  }

  /** Ids expire, because a database restored from a backup assigns lower ids again. */
  #isExpired({ readAtMs }: FoundId): boolean {
    return readAtMs < this.#nowMs() - this.#lifetimeMs
  }

  #higher(current: FoundId, other: FoundId): FoundId {
    return other.id > current.id || this.#isExpired(current) ? other : current
  }
}
