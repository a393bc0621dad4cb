/**
 * Knows an id below which no create in flight can add a pet any more, so that gaps between ids can be cached.
 *
 * Ids come from one sequence in ascending order, and a transaction locks the table before it takes an id, until its
 * pet is visible. So once a pet is visible, only the transactions that hold the lock then can still add a lower id.
 * When all of them have ended, the gaps below are final. This needs no bound on the time of a statement or a commit.
 */

/** The minimum time in milliseconds between two looks at the writers. */
const intervalMs = 1_000

/** An id that was visible in a statement that started at a time. */
interface Visible {
  readonly id: number
  readonly at: number
}

const none: Visible = { id: 0, at: -Infinity }

export class SettledIds {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  #lookedAt = -Infinity
  /** The greatest id above an unsettled gap since the last look. */
  #unsettled = none
  /** The greatest such id before the last look, and the writers at the look. */
  #candidate: { readonly visible: Visible; readonly writers: ReadonlySet<unknown> } = {
    visible: none,
    writers: new Set()
  }
  #settled = none

  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
  }

  /** The settled id. It holds for the lifetime, because the sequence returns lower ids again after a restore. */
  current(): number {
    return this.#isExpired(this.#settled) ? 0 : this.#settled.id
  }

  /** Notes that a statement that started at `at` found a pet above a gap. */
  noteGap(id: number, at: number): void {
    this.#unsettled = this.#greater(this.#unsettled, { id, at })
  }

  /** Begins a look, if one is due, and returns the function that takes the writers. */
  beginLook(): ((writers: ReadonlySet<unknown>) => void) | undefined {
    const now = this.#nowMs()
    if (this.#unsettled === none || now - this.#lookedAt < intervalMs) return undefined
    const [candidate, visible] = [this.#candidate, this.#unsettled]
    this.#lookedAt = now
    this.#unsettled = none
    return (writers) => {
      // A look that ended meanwhile may have seen later writers.
      if (this.#candidate !== candidate) return
      if (writers.isDisjointFrom(candidate.writers)) this.#settled = this.#greater(this.#settled, candidate.visible)
      this.#candidate = { visible, writers }
    }
  }

  #isExpired({ at }: Visible): boolean {
    return at < this.#nowMs() - this.#lifetimeMs
  }

  #greater(current: Visible, other: Visible): Visible {
    return other.id > current.id || this.#isExpired(current) ? other : current
  }
}
