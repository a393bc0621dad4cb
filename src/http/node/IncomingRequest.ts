/** A request of Node's server, with what this service keeps of it, and a bound for the bodies that are arriving. */
import { Effect } from "effect"
import { IncomingMessage, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { RequestContext } from "../response/RequestContext.ts"

/** Bytes of bodies that may be in memory at once. Beyond it the connections that began first are closed. */
const maxBodyBytes = 16 * 1024 * 1024
/** What Node buffers of one body, twice: a longer body is dropped as it arrives. */
const maxCountedBytes = 128 * 1024

/** The bodies that one server holds, the oldest first: those that are arriving, and those that are not read yet. */
export class RequestBodies {
  readonly #bodies = new Map<IncomingRequest, number>()
  #bytes = 0

  /** Counts a body with all bytes that arrived of it so far, until it is removed. */
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

/** A request whose body may fail while its response can still be sent. */
export class IncomingRequest extends IncomingMessage {
  /** What is known of the request, once the server has begun it. */
  requestContext: RequestContext | undefined = undefined
  /** The response to the request, once the request has its place on the connection. */
  response: ServerResponse | undefined = undefined
  readonly #bodies: RequestBodies
  #isFaulty = false
  #arrivedBytes = 0

  constructor(socket: Socket, bodies: RequestBodies) {
    super(socket)
    this.#bodies = bodies
  }

  /** Ends the body where it is: a reader of the body, now or later, gets `fault`. */
  fail(fault: Error): void {
    this.#isFaulty = true
    this.destroy(fault)
  }

  /**
   * To run before a large response is read or rendered: waits until the responses before it on the connection are sent,
   * and until few large ones of other connections are in memory. Dies with `ServiceUnavailable` after a second without
   * room; interrupts if the connection is closed meanwhile.
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

  /** Node's parser pushes each part of the body here, and `null` at its end. */
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

  /** A body that has arrived counts until it is read. Node destroys only requests that are read past their end. */
  #deleteIfRead(): void {
    if (this.complete && this.readableLength === 0) this.#bodies.delete(this)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#bodies.delete(this)
    if (!this.#isFaulty) return super._destroy(error, done)
    // The connection stays open. Without a reader of the body the error must not be emitted.
    process.nextTick(() => done(this.listenerCount("error") === 0 ? null : error))
  }
}
