/** The responses that a server has yet to send: a bound for all connections together. */
import type { Socket } from "node:net"
import type { Slot } from "./AdmissionControl.ts"

/** Bytes of responses that wait for clients to read them. Beyond it the slowest readers lose their connections. */
const maxUnsentBytes = 48 * 1024 * 1024

/**
 * Bytes per connection whose client does not read as fast as it requests. A response that the kernel takes at once is
 * never counted.
 */
export class ResponseBuffers {
  /** In the order in which the connections last made progress: the one that stands still for longest comes first. */
  readonly #connections = new Map<Socket, number>()
  #bytes = 0

  /** Counts `bytes` for a connection, and occupies the slot of the response, until the returned function is called. */
  hold(socket: Socket, bytes: number, slot: Slot | undefined): () => void {
    this.#bytes += bytes
    this.#connections.set(socket, (this.#connections.get(socket) ?? 0) + bytes)
    slot?.hold()
    this.#closeSlowest()
    return () => {
      slot?.release()
      const held = this.#connections.get(socket)
      if (held === undefined) return
      this.#bytes -= bytes
      this.#connections.delete(socket)
      if (held > bytes) this.#connections.set(socket, held - bytes)
    }
  }

  #closeSlowest(): void {
    if (this.#bytes <= maxUnsentBytes) return
    for (const [socket, bytes] of this.#connections) {
      // Some more, so that this does not happen with every response.
      if (this.#bytes <= maxUnsentBytes * 0.9) return
      this.#connections.delete(socket)
      this.#bytes -= bytes
      socket.destroy()
    }
  }
}
