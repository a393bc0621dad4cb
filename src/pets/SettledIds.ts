const minCheckIntervalMs = 1_000

interface FoundId {
  readonly id: number
  readonly readAtMs: number
}

const none: FoundId = { id: 0, readAtMs: -Infinity }

/**
 * Finds an id below which no transaction can still insert a pet, so that gaps below it can be cached. Ids come from an
 * ascending sequence, and each transaction locks the table for writing before it takes an id. Once a pet is visible,
 * only the transactions that hold such a lock at that moment can insert lower ids. When all of them have ended, the id
 * is settled.
 */
export class SettledIds {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  #checkedAtMs = -Infinity
  /** The highest id found since the last check that follows a gap. */
  #unchecked = none
  /**
   * Only `writers`, the transactions that held the table lock at the last check, can still insert ids below `found.id`.
   * When all of them have ended, the id is settled.
   */
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
   * Begins a check whether any open transaction can still fill the known gaps, or returns `undefined` if none is due.
   * Then read which transactions hold the table lock, and pass them to the returned function.
   */
  beginCheck(): ((writers: ReadonlySet<unknown>) => void) | undefined {
    const nowMs = this.#nowMs()
    if (this.#unchecked === none || nowMs - this.#checkedAtMs < minCheckIntervalMs) return undefined
    const [candidate, found] = [this.#candidate, this.#unchecked]
    this.#checkedAtMs = nowMs
    this.#unchecked = none
    return (writers) => {
      // If another check has finished meanwhile, ignore this result. The other check's `writers` may be newer.
      if (this.#candidate !== candidate) return
      if (writers.isDisjointFrom(candidate.writers)) this.#settled = this.#higher(this.#settled, candidate.found)
      this.#candidate = { found, writers }
    }
  }

  /** A settled id expires, because a database restored from a backup can assign ids below it again. */
  #isExpired({ readAtMs }: FoundId): boolean {
    return readAtMs < this.#nowMs() - this.#lifetimeMs
  }

  #higher(current: FoundId, other: FoundId): FoundId {
    return other.id > current.id || this.#isExpired(current) ? other : current
  }
}
