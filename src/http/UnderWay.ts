/** How many requests are worked on at once, and what becomes of the others: they wait for their turn, for a while. */
import { Context } from "effect"

/** More at once would all take longer, and each holds memory. */
const most = 2_500
/** As many as there are connections: who sends many requests on one is not to fill the memory with them. */
const mostWaiting = 10_000
/** How long a request waits, milliseconds: as long as `Retry-After` then asks its caller to wait. */
const patience = 1_000
/** Requests that begin in one turn of the event loop: all else waits for them. */
const atOnce = 100

interface Waiting {
  readonly begin: () => void
  readonly timer: NodeJS.Timeout
  isLate: boolean
}

/** Requests that are under way, and those that wait to be, in the order in which they came. */
export class Requests {
  count = 0
  readonly #waiting = new Set<Waiting>()
  #isTurn = false

  /** Whether who comes now, or has waited for too long, is to be told to come again. */
  get isFull(): boolean {
    return this.count >= most || this.#waiting.size >= mostWaiting
  }

  /**
   * Runs `begin` once: when there is room for the request, and else when it has waited for too long, or cannot wait.
   */
  whenRoom(begin: () => void): void {
    if ((this.count < most && this.#waiting.size === 0) || this.#waiting.size >= mostWaiting) return begin()
    const late = () => {
      waiting.isLate = true
      this.#beginNext()
    }
    const waiting: Waiting = { begin, timer: setTimeout(late, patience), isLate: false }
    this.#waiting.add(waiting)
  }

  enter(): void {
    this.count++
  }

  leave(): void {
    this.count--
    this.#beginNext()
  }

  /**
   * Once for all that end in this turn of the event loop: to find the first of a set is to step over what was removed.
   */
  #beginNext(): void {
    if (this.#isTurn || this.#waiting.size === 0) return
    this.#isTurn = true
    setImmediate(() => {
      this.#isTurn = false
      for (const waiting of this.#waiting.values().take(atOnce)) {
        if (this.count >= most && !waiting.isLate) return
        clearTimeout(waiting.timer)
        this.#waiting.delete(waiting)
        waiting.begin()
      }
      this.#beginNext()
    })
  }
}

/** The requests of this process. */
export const UnderWay = Context.Reference("petstore/http/UnderWay", { defaultValue: () => new Requests() })
