/** How much is done at once, and what becomes of the rest: it waits for its turn, for a while. */
import { Context } from "effect"

/** More requests at once would all take longer, and each holds memory. */
const most = 2_500
/** As many as connections: who sends many requests on one is not to fill the memory with them. */
const mostWaiting = 10_000
/** How long a request waits for its turn, milliseconds: as long as `Retry-After` then asks its caller to wait. */
const patience = 1_000

/** The requests that are under way, and those that wait to be, in the order in which they came. */
class Requests {
  count = 0
  readonly #waiting = new Map<() => void, NodeJS.Timeout>()
  #isTurn = false

  /** Whether there are so many that who comes now, and cannot wait, or did, is told to come again. */
  get isFull(): boolean {
    return this.count >= most
  }

  /** Runs `begin` when there is room for it, or, when it had to wait for too long, nevertheless: to find that it `isFull`. */
  await(begin: () => void): void {
    if ((!this.isFull && this.#waiting.size === 0) || this.#waiting.size >= mostWaiting) return begin()
    const late = () => {
      this.#waiting.delete(begin)
      begin()
    }
    this.#waiting.set(begin, setTimeout(late, patience))
  }

  enter(): void {
    this.count++
  }

  leave(): void {
    this.count--
    if (this.#isTurn || this.#waiting.size === 0) return
    this.#isTurn = true
    // Once for all that end in this turn of the event loop: to find the first of a map is to step over what was deleted.
    setImmediate(() => {
      this.#isTurn = false
      for (const [begin, timer] of this.#waiting) {
        if (this.isFull) return
        clearTimeout(timer)
        this.#waiting.delete(begin)
        begin()
      }
    })
  }
}

/** The requests of this process. */
export const UnderWay = Context.Reference("petstore/http/UnderWay", { defaultValue: () => new Requests() })
