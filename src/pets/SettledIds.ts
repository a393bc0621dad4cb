/**
 * Finds an id below which no transaction can insert a pet any more, so that the gaps below it can be cached.
 *
 * The sequence ascends, and a transaction locks the table before it takes an id, until its pet is visible. So once a
 * pet is visible, only transactions that hold the lock then can insert a lower id. When they have ended, the gaps below
 * are final, however long they took. A look reads the holders of the lock, at most once a second.
 */

const minIntervalMs = 1_000

interface Found {
  readonly id: number
  /** When the statement started that found a pet with this id. */
  readonly at: number
}

const none: Found = { id: 0, at: -Infinity }

export class SettledIds {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  #lookedAt = -Infinity
  /** The highest id above a gap that was found after the last look. */
  #unsettled = none
  /** The highest such id before the last look, and the transactions that held the lock then. */
  #candidate: { readonly found: Found; readonly writers: ReadonlySet<unknown> } = { found: none, writers: new Set() }
  #settled = none

  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
  }

  current(): number {
    return this.#isExpired(this.#settled) ? 0 : this.#settled.id
  }

  noteGap(id: number, at: number): void {
    this.#unsettled = this.#higher(this.#unsettled, { id, at })
  }

  /** If a look at the locks is due, returns the function to call with the transactions that hold them. */
  beginLook(): ((writers: ReadonlySet<unknown>) => void) | undefined {
    const now = this.#nowMs()
    if (this.#unsettled === none || now - this.#lookedAt < minIntervalMs) return undefined
    const [candidate, found] = [this.#candidate, this.#unsettled]
    this.#lookedAt = now
    this.#unsettled = none
    return (writers) => {
      // A look that ended meanwhile may have seen later writers.
      if (this.#candidate !== candidate) return
      if (writers.isDisjointFrom(candidate.writers)) this.#settled = this.#higher(this.#settled, candidate.found)
      this.#candidate = { found, writers }
    }
  }

  /** Ids expire, because the sequence returns lower ones again after a restore. */
  #isExpired({ at }: Found): boolean {
    return at < this.#nowMs() - this.#lifetimeMs
  }

  #higher(current: Found, other: Found): Found {
    return other.id > current.id || this.#isExpired(current) ? other : current
  }
}
