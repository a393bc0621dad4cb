/** A limit on how many requests are in flight at once. The others queue, each for a second at most. */

/** How long a request may queue, in milliseconds: as long as `Retry-After` then asks its client to wait. */
const maxWaitMs = 1_000
/** Queued requests that start in one turn of the event loop: everything else waits for them. */
const maxStartsPerTurn = 100

interface Queued {
  readonly start: () => void
  readonly timer: NodeJS.Timeout
  isLate: boolean
}

/** Counts the requests in flight, and queues others in the order in which they arrived. */
export class ConcurrencyLimit {
  readonly #maxInFlight: number
  readonly #maxQueued: number
  readonly #queue = new Set<Queued>()
  #inFlight = 0
  #members = 0
  #isScheduled = false

  constructor(options: { readonly maxInFlight: number; readonly maxQueued: number }) {
    this.#maxInFlight = options.maxInFlight
    this.#maxQueued = options.maxQueued
  }

  get inFlight(): number {
    return this.#inFlight
  }

  /** The requests that wait for room. */
  get queued(): number {
    return this.#queue.size
  }

  /** Whether to reject a request that arrives now, or has waited for too long. */
  get isFull(): boolean {
    return this.#inFlight >= this.#maxInFlight || this.#queue.size >= this.#maxQueued
  }

  /** Whether no request that may enter again is left. */
  get isIdle(): boolean {
    return this.#inFlight === 0 && this.#members === 0 && this.#queue.size === 0
  }

  /** Counts a request that may enter and leave several times. */
  addMember(): void {
    this.#members++
  }

  removeMember(): void {
    this.#members--
  }

  /** Whether a request that arrives now has to queue. */
  get mustQueue(): boolean {
    return this.#inFlight >= this.#maxInFlight || this.#queue.size > 0
  }

  /** Runs `start` once: when there is room, and else when it has waited for too long or the queue is full. */
  whenRoom(start: () => void): void {
    if (!this.mustQueue || this.#queue.size >= this.#maxQueued) return start()
    const onTimeout = () => {
      queued.isLate = true
      this.#startNext()
    }
    const queued: Queued = { start, timer: setTimeout(onTimeout, maxWaitMs), isLate: false }
    this.#queue.add(queued)
  }

  enter(): void {
    this.#inFlight++
  }

  leave(): void {
    this.#inFlight--
    this.#startNext()
  }

  /** Runs once for all requests that end in a turn: finding the first entry of a set steps over the deleted ones. */
  #startNext(): void {
    if (this.#isScheduled || this.#queue.size === 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      for (const queued of this.#queue.values().take(maxStartsPerTurn)) {
        if (this.#inFlight >= this.#maxInFlight && !queued.isLate) return
        clearTimeout(queued.timer)
        this.#queue.delete(queued)
        queued.start()
      }
      this.#startNext()
    })
  }
}
