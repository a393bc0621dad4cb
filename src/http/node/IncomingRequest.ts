/** A request of Node's server, with its request context, and a bound for the request bodies in memory. */
import { Effect } from "effect"
import { IncomingMessage, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { RequestContext } from "../response/RequestContext.ts"
import { type ServerSource, TypeId } from "../response/ServerSource.ts"

/** The maximum of body bytes in memory. Beyond it the connections with the oldest bodies are closed. */
const maxBodyBytes = 16 * 1024 * 1024
/** The maximum that is counted of one body: twice what Node buffers of it. A longer body is dropped as it arrives. */
const maxCountedBytes = 128 * 1024

/** The request bodies in the memory of one server, the oldest first. A body counts until the handler has read it. */
export class RequestBodies {
  readonly #bodies = new Map<IncomingRequest, number>()
  #bytes = 0

  /**
   * Counts the bytes that arrived of a body so far. Closes the connections of the oldest bodies when there are too
   * many.
   */
  set(request: IncomingRequest, arrived: number): void {
    const bytes = Math.min(arrived, maxCountedBytes)
    this.#bytes += bytes - (this.#bodies.get(request) ?? 0)
    this.#bodies.set(request, bytes)
    while (this.#bytes > maxBodyBytes) {
      const [oldest] = this.#bodies.keys()
      if (oldest === undefined) return
      this.delete(oldest)
      oldest.socket.destroy()
    }
  }

  delete(request: IncomingRequest): void {
    this.#bytes -= this.#bodies.get(request) ?? 0
    this.#bodies.delete(request)
  }
}

/** A request whose body can fail while its response can still be sent. */
export class IncomingRequest extends IncomingMessage implements ServerSource {
  /** The request context, once the server handles the request. */
  requestContext: RequestContext | undefined = undefined
  /** The response, once the request is next or queued on its connection. */
  response: ServerResponse | undefined = undefined
  readonly #bodies: RequestBodies
  #isFaulty = false
  #arrivedBytes = 0

  constructor(socket: Socket, bodies: RequestBodies) {
    super(socket)
    this.#bodies = bodies
  }

  get [TypeId](): true {
    return true
  }

  get isClosed(): boolean {
    return this.socket.destroyed
  }

  /** Ends the body with `fault`, which current and later readers of the body receive. */
  fail(fault: Error): void {
    this.#isFaulty = true
    this.destroy(fault)
  }

  /**
   * Must run before a large response is read or rendered. Waits until the responses before it on the connection are
   * sent, and until few large responses of other connections are in memory. Dies with `ServiceUnavailable` after one
   * second. Interrupts if the connection closes meanwhile.
   */
  get reserveLargeResponse(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { requestContext, response, socket } = this
      if (requestContext === undefined || response === undefined) return Effect.void
      const inTurn = Effect.callback<void>((resume) => {
        const proceed = () => resume(Effect.void)
        if (response.socket !== null || socket.destroyed) return proceed()
        response.once("socket", proceed).once("close", proceed)
        return Effect.sync(() => response.off("socket", proceed).off("close", proceed))
      })
      return Effect.flatMap(
        inTurn,
        () => socket.destroyed ? Effect.interrupt : Effect.orDie(requestContext.slot.reserveLargeResponse())
      )
    })
  }

  /** Node's parser calls this with each part of the body, and with `null` at its end. */
  override push(chunk: unknown, encoding?: BufferEncoding): boolean {
    if (chunk instanceof Uint8Array) {
      this.#arrivedBytes += chunk.length
      this.#bodies.set(this, this.#arrivedBytes)
    }
    const hasRoom = super.push(chunk, encoding)
    if (this.#arrivedBytes > 0) this.#deleteIfRead()
    return hasRoom
  }

  override read(size?: number): unknown {
    const chunk: unknown = super.read(size)
    if (this.#arrivedBytes > 0) this.#deleteIfRead()
    return chunk
  }

  /** Stops counting a body that has arrived and is read. Node destroys only requests that are read past their end. */
  #deleteIfRead(): void {
    if (this.complete && this.readableLength === 0) this.#bodies.delete(this)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#bodies.delete(this)
    if (!this.#isFaulty) return super._destroy(error, done)
    // The connection stays open. Without a reader of the body, nothing would handle an emitted error.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}
