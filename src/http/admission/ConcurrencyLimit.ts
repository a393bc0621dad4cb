/** A limit on the requests in flight, with a queue in which a request waits for at most one second. */
import { Scheduler } from "effect"

/** The maximum time in the queue. It is as long as the `Retry-After` of the rejection. */
const maxWaitMs = 1_000
/** The maximum of queued requests that start in one turn of the event loop. All other work waits for them. */
const maxStartsPerTurn = 100

interface Queued {
  readonly start: () => void
  readonly timer: ReturnType<typeof setTimeout>
  isLate: boolean
}

/** Runs tasks at the end of the turn of the event loop: with `setImmediate` in Node, which browsers do not have. */
const endOfTurn = new Scheduler.MixedScheduler().makeDispatcher()

/** Counts the requests in flight, and starts queued requests in the order of their arrival. */
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

  /** The number of queued requests. */
  get queued(): number {
    return this.#queue.size
  }

  /** Whether to reject a request that arrives now, or that has queued for too long. */
  get isFull(): boolean {
    return this.#inFlight >= this.#maxInFlight || this.#queue.size >= this.#maxQueued
  }

  /** Whether no request is in flight, queued, or able to enter again. */
  get isIdle(): boolean {
    return this.#inFlight === 0 && this.#members === 0 && this.#queue.size === 0
  }

  /** Counts a request that may enter and leave several times. The limit is not idle until `removeMember`. */
  addMember(): void {
    this.#members++
  }

  removeMember(): void {
    this.#members--
  }

  /** Whether a request that arrives now must queue. */
  get mustQueue(): boolean {
    return this.#inFlight >= this.#maxInFlight || this.#queue.size > 0
  }

  /**
   * Runs `start` once: when the limit has room, when the request has queued for too long, or at once if the queue is
   * full. `start` must check `isFull`.
   */
  startOrQueue(start: () => void): void {
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

  /**
   * Schedules one pass over the queue for the end of the turn. A pass for each request that ends would be slow, because
   * reading the first entry of a `Set` steps over all deleted entries.
   */
  #startNext(): void {
    if (this.#isScheduled || this.#queue.size === 0) return
    this.#isScheduled = true
    endOfTurn.scheduleTask(() => {
      this.#isScheduled = false
      for (const queued of this.#queue.values().take(maxStartsPerTurn)) {
        if (this.#inFlight >= this.#maxInFlight && !queued.isLate) return
        clearTimeout(queued.timer)
        this.#queue.delete(queued)
        queued.start()
      }
      this.#startNext()
    }, 0)
  }
}
