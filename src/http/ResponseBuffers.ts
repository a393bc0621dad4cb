/** The responses that a server has yet to send: a bound for all connections together. */
import type { Socket } from "node:net"
import type { Slot } from "./AdmissionControl.ts"

/** Bytes of responses that wait for clients to read them. Beyond it the slowest readers lose their connections. */
const maxUnsentBytes = 32 * 1024 * 1024
const checkIntervalMs = 250

interface Unsent {
  readonly bytes: number
  /** When the connection last made progress, by `performance.now()`. */
  readonly since: number
}

/**
 * Bytes per connection whose client does not read as fast as it requests. A response that the kernel takes at once is
 * never counted.
 */
export class ResponseBuffers {
  /** In the order in which the connections last made progress: the one that stands still for longest comes first. */
  readonly #connections = new Map<Socket, Unsent>()
  readonly #maxStallMs: () => number
  #bytes = 0
  #isChecking = false

  /** `maxStallMs` tells for how long a client may read nothing, as things stand. */
  constructor(maxStallMs: () => number) {
    this.#maxStallMs = maxStallMs
  }

  /** Counts `bytes` for a connection, and occupies the slot of the response, until the returned function is called. */
  hold(socket: Socket, bytes: number, slot: Slot | undefined): () => void {
    slot?.hold()
    const { bytes: before = 0, since = performance.now() } = this.#connections.get(socket) ?? {}
    this.#bytes += bytes
    this.#connections.set(socket, { bytes: before + bytes, since })
    this.#closeBeyondBound()
    this.#scheduleCheck()
    return () => {
      slot?.release()
      const held = this.#connections.get(socket)
      if (held === undefined) return
      this.#bytes -= bytes
      this.#connections.delete(socket)
      if (held.bytes > bytes) this.#connections.set(socket, { bytes: held.bytes - bytes, since: performance.now() })
    }
  }

  #close(socket: Socket, { bytes }: Unsent): void {
    this.#connections.delete(socket)
    this.#bytes -= bytes
    socket.destroy()
  }

  #closeBeyondBound(): void {
    if (this.#bytes <= maxUnsentBytes) return
    for (const [socket, unsent] of this.#connections) {
      // Some more, so that this does not happen with every response.
      if (this.#bytes <= maxUnsentBytes * 0.9) return
      this.#close(socket, unsent)
    }
  }

  #scheduleCheck(): void {
    if (this.#isChecking || this.#connections.size === 0) return
    this.#isChecking = true
    setTimeout(() => {
      this.#isChecking = false
      this.#closeStalled()
      this.#scheduleCheck()
    }, checkIntervalMs).unref()
  }

  /** What clients occupy by not reading goes to the requests that queue. */
  #closeStalled(): void {
    const stalledSince = performance.now() - this.#maxStallMs()
    for (const [socket, unsent] of this.#connections) {
      if (unsent.since > stalledSince) return
      this.#close(socket, unsent)
    }
  }
}
