/** The responses that a server has yet to send: a bound for all connections together. */
import { Predicate } from "effect"
import type { Socket } from "node:net"
import type { Slot } from "./AdmissionControl.ts"

/** Bytes of responses that wait for clients to read them. Beyond it the slowest readers lose their connections. */
const maxUnsentBytes = 16 * 1024 * 1024
const checkIntervalMs = 250
/** Bytes that a connection sends at least to count as one that makes progress. */
const minProgressBytes = 16 * 1024

interface Unsent {
  readonly bytes: number
  /** When the connection last made progress, by `performance.now()`. */
  readonly since: number
  /** How many bytes the kernel had taken then. */
  readonly sent: number
}

/**
 * Bytes of a connection that the kernel has taken. `socket.bytesWritten` counts a whole write as soon as libuv has it.
 * How much of it libuv still holds, Node tells by the handle alone, where its own socket timeout reads it. Without it,
 * a client that reads a long response steadily looks like one that reads nothing.
 */
const sentBytes = (socket: Socket): number => {
  const handle: unknown = Reflect.get(socket, "_handle")
  return isHandle(handle) ? handle.bytesWritten - handle.writeQueueSize : 0
}

const isHandle = (handle: unknown): handle is { readonly bytesWritten: number; readonly writeQueueSize: number } =>
  Predicate.hasProperty(handle, "bytesWritten") && Predicate.hasProperty(handle, "writeQueueSize")

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

  /** `maxStallMs` tells for how long a client may read next to nothing, as things stand. */
  constructor(maxStallMs: () => number) {
    this.#maxStallMs = maxStallMs
  }

  /** Counts `bytes` for a connection, and occupies the slot of the response, until the returned function is called. */
  hold(socket: Socket, bytes: number, slot: Slot | undefined): () => void {
    slot?.hold()
    const { bytes: before = 0, since = performance.now(), sent = sentBytes(socket) } = this.#connections.get(socket) ??
      {}
    this.#bytes += bytes
    this.#connections.set(socket, { bytes: before + bytes, since, sent })
    this.#closeBeyondBound()
    this.#scheduleCheck()
    return () => {
      slot?.release()
      const held = this.#connections.get(socket)
      if (held === undefined) return
      this.#bytes -= bytes
      if (held.bytes > bytes) this.#connections.set(socket, { ...held, bytes: held.bytes - bytes })
      else this.#connections.delete(socket)
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
      this.#recordProgress()
      this.#closeStalled()
      this.#scheduleCheck()
    }, checkIntervalMs).unref()
  }

  #recordProgress(): void {
    const now = performance.now()
    for (const [socket, unsent] of this.#connections) {
      const sent = sentBytes(socket)
      if (sent - unsent.sent < minProgressBytes) continue
      // To the end of the map, where this loop finds it once more, without progress.
      this.#connections.delete(socket)
      this.#connections.set(socket, { bytes: unsent.bytes, since: now, sent })
    }
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
