import { FreeList } from "../../collections/FreeList.ts"

/**
 * The maximum time without a reply while Redis owes one, in milliseconds. Including its detection, no command waits for
 * 50 ms.
 */
export const maxSilenceMs = 35
/**
 * The maximum time of a reply while other replies arrive, in milliseconds. Beyond it, Redis or this process is
 * overloaded.
 */
export const maxReplyTimeMs = 100
/** The interval of the checks for late replies, in milliseconds. */
export const checkIntervalMs = 5

/**
 * Detects late replies on one connection, from the times that it is given.
 *
 * It measures in awake time: the time during which this process could have read a reply. While the process stands
 * still, for lack of a core or in a long task, Redis is not late. Awake time grows only with checks, by at most two
 * intervals each. It stands still while no command is in flight, so no check needs to run then.
 */
export class ReplyWatch {
  #awakeMs = 0
  #checkedAt: number
  #lastReplyAt = 0
  #wasLate = false
  /** The commands in flight, with the awake time of their sending. */
  readonly #inFlight = new FreeList<{ readonly sentAt: number }>()
  #inFlightCount = 0

  constructor(now: number) {
    this.#checkedAt = now
  }

  get isIdle(): boolean {
    return this.#inFlightCount === 0
  }

  /** Records a sent command. Returns its slot, for `received` or `dropped`. */
  sent(): number {
    this.#inFlightCount++
    return this.#inFlight.add({ sentAt: this.#awakeMs })
  }

  /** Records the reply to a command. */
  received(slot: number): void {
    this.dropped(slot)
    this.#lastReplyAt = this.#awakeMs
  }

  /** Removes a command whose sender no longer waits for the reply. */
  dropped(slot: number): void {
    this.#inFlightCount--
    this.#inFlight.remove(slot)
  }

  /** Begins checks after an idle time. */
  resume(now: number): void {
    this.#checkedAt = now
    this.#wasLate = false
  }

  /**
   * Returns whether a reply is late. A second check confirms it: replies that arrived while the process stood still are
   * not read yet.
   */
  isLate(now: number): boolean {
    this.#awakeMs += Math.min(now - this.#checkedAt, 2 * checkIntervalMs)
    this.#checkedAt = now
    let oldest = Infinity
    for (const { sentAt } of this.#inFlight) oldest = Math.min(oldest, sentAt)
    const late = this.#awakeMs - Math.max(oldest, this.#lastReplyAt) >= maxSilenceMs ||
      this.#awakeMs - oldest >= maxReplyTimeMs
    const isConfirmed = late && this.#wasLate
    this.#wasLate = late
    return isConfirmed
  }
}
