/** A bound for the bytes of responses that clients have not read, over all connections of a server. */
import { Predicate } from "effect"
import type { Socket } from "node:net"
import type { Slot } from "../admission/AdmissionControl.ts"

/** The maximum of unread response bytes. Beyond it the connections of the slowest readers are closed. */
const maxUnsentBytes = 16 * 1024 * 1024
const checkIntervalMs = 250
/** The minimum of bytes that a connection must send to count as making progress. */
const minProgressBytes = 16 * 1024

interface Unsent {
  readonly bytes: number
  /** The time of the last progress, by `performance.now()`. */
  readonly since: number
  /** The bytes that the kernel had taken at that time. */
  readonly sent: number
}

/**
 * Returns the bytes of a connection that the kernel has taken. `socket.bytesWritten` counts a whole write once libuv
 * has it. Only the socket's handle knows how much of it libuv still holds; Node's own socket timeout reads it there.
 * Without it, a client that reads a long response steadily looks like one that reads nothing.
 */
const sentBytes = (socket: Socket): number => {
  const handle: unknown = Reflect.get(socket, "_handle")
  return isHandle(handle) ? handle.bytesWritten - handle.writeQueueSize : 0
}

const isHandle = (handle: unknown): handle is { readonly bytesWritten: number; readonly writeQueueSize: number } =>
  Predicate.hasProperty(handle, "bytesWritten") && Predicate.hasProperty(handle, "writeQueueSize")

/**
 * Counts the unread bytes of connections whose clients read more slowly than they request. A response that the kernel
 * takes at once is never counted.
 */
export class ResponseBuffers {
  /** Connections in the order of their last progress: the longest without progress comes first. */
  readonly #connections = new Map<Socket, Unsent>()
  readonly #maxStallMs: () => number
  #bytes = 0
  #isChecking = false

  /** `maxStallMs` returns the milliseconds for which a client may read almost nothing. */
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
      // Frees 10 % more than necessary, so that this does not run for every response.
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
      // Moves the connection to the end of the map. The loop reaches it again, without progress.
      this.#connections.delete(socket)
      this.#connections.set(socket, { bytes: unsent.bytes, since: now, sent })
    }
  }

  /** Closes stalled connections while requests queue for the slots that they occupy. */
  #closeStalled(): void {
    const stalledSince = performance.now() - this.#maxStallMs()
    for (const [socket, unsent] of this.#connections) {
      if (unsent.since > stalledSince) return
      this.#close(socket, unsent)
    }
  }
}
