/**
 * Bounds the bytes that unread responses hold together, on all servers that share the instance.
 *
 * Laws: the responses that are added and not yet closed hold at most `maxBytes`, because `add` closes the oldest ones
 * until they do. A response counts from `add` until it closes, for whatever reason.
 */
import type { ServerResponse } from "node:http"

export class UnreadResponses {
  readonly #maxBytes: number
  readonly #open = new Map<ServerResponse, () => void>()
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Counts `bytes` for `response`. `closeConnection` must close the connection of `response`. */
  add(response: ServerResponse, bytes: number, closeConnection: () => void): void {
    const release = () => {
      if (this.#open.delete(response)) this.#bytes -= bytes
    }
    this.#bytes += bytes
    this.#open.set(response, () => {
      release()
      closeConnection()
    })
    response.once("close", release)
    for (const closeOldest of this.#open.values()) {
      if (this.#bytes <= this.#maxBytes) break
      closeOldest()
    }
  }
}
