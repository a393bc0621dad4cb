/**
 * Sends all responses of an event-loop turn one right behind the other, so that a client process with several of them
 * usually wakes once. A get then takes 0.5 to 0.7 times the CPU, but the same on a machine where waking is cheap
 * (docs/performance.md).
 *
 * Laws: `send` of each added response runs once, in the order of adding, at the end of the turn. It must not throw,
 * because the other responses of the turn would then not be sent.
 */
export class TurnSends {
  #responses: Array<{ send(): void }> = []

  add(response: { send(): void }): void {
    if (this.#responses.length === 0) setImmediate(this.#flush)
    this.#responses.push(response)
  }

  readonly #flush = (): void => {
    const responses = this.#responses
    this.#responses = []
    for (const response of responses) response.send()
  }
}
