/**
 * A response that waits until the connection's earlier responses are sent. All responses that end in one event-loop
 * turn are sent together (`TurnSends`).
 */
import { ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { BufferedRequest } from "./BufferedRequest.ts"

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

/** The part of a connection that its response uses. */
export interface ResponseHost {
  readonly sends: TurnSends
  /** The connection's responses before this response are sent, so the request of this response may start. */
  mayStart(): void
  /** The response is written to the socket. It holds `bytes` of memory until the socket has sent it. */
  responseWritten(response: OrderedResponse, bytes: number): void
  /** The response has left the process. Not called if its connection is closed before. */
  responseSent(response: OrderedResponse): void
  /** Ends the connection after a defect. */
  crash(defect: unknown): void
}

const none: ReadonlyArray<unknown> = []

export class OrderedResponse extends ServerResponse<BufferedRequest> {
  /** `OrderedConnection.receive` sets it before a handler can end the response. */
  host: ResponseHost | undefined
  /** The arguments of `end`, until `send` passes them to Node. */
  #values = none
  /** The value of `shouldKeepAlive` before the latest `makeLast`. */
  #wasKeptAlive = true

  /** Closes the connection after this response, unless `unmakeLast` follows. */
  makeLast(): void {
    this.#wasKeptAlive = this.shouldKeepAlive
    this.shouldKeepAlive = false
  }

  unmakeLast(): void {
    this.shouldKeepAlive = this.#wasKeptAlive
  }

  /** Node calls this when the connection's earlier responses are sent (RFC 9112 §9.3.2). */
  override assignSocket(socket: Socket): void {
    super.assignSocket(socket)
    this.host?.mayStart()
  }

  /** Node calls this when the response is sent. */
  override detachSocket(socket: Socket): void {
    super.detachSocket(socket)
    this.host?.responseSent(this)
  }

  override end(...values: ReadonlyArray<unknown>): this {
    if (this.host === undefined) return Reflect.apply(super.end, this, values)
    // A second `end` adds nothing to the response.
    if (this.#values !== none || this.writableEnded) return this
    this.#values = values
    this.host.sends.add(this)
    return this
  }

  /** Calls Node's `end` with the arguments of the earlier call of `end`. */
  send(): void {
    const { host } = this
    const values = this.#values
    this.#values = none
    if (host === undefined || this.destroyed) return
    try {
      Reflect.apply(super.end, this, values)
    } catch (defect) {
      return host.crash(defect)
    }
    const [body] = values
    const bytes = typeof body === "string" || body instanceof Uint8Array ? Buffer.byteLength(body) : 0
    // Count the body twice: Effect keeps the body's text, and Node its encoded bytes.
    host.responseWritten(this, 2 * bytes)
  }
}
