/**
 * A request whose body is collected in one buffer, because one-byte chunks in separate buffers would take 500 bytes
 * each.
 *
 * Laws, whatever the sizes of the chunks and whenever the reader asks:
 * - A whole or failed body never changes. If the connection closes first, the body stays growing.
 * - A body holds at most `bodyBytes`, from at most `bodyChunks` chunks. Beyond either limit, `bodyFault` tells the
 *   connection, which makes the body fail.
 * - If the body settles, a reader (the callback of `whenRead`) gets it exactly once, whole or failed, whether it asked
 *   before or after that. Code that reads the request as a stream gets it too: once it has begun to read, the stream
 *   ends, or fails with the fault.
 */
import { IncomingMessage } from "node:http"
import type { BodySource, BodyState, SettledBody } from "./BodyState.ts"

/** The part of a connection that its request uses. */
export interface RequestHost {
  readonly limits: { readonly bodyBytes: number; readonly bodyChunks: number }
  bodyWhole(request: BufferedRequest): void
  /** The body is over one of its limits. Calls `failBody`. */
  bodyFault(fault: Error): void
  /** Ends the connection after a defect of a reader. */
  crash(defect: unknown): void
}

const growing: BodyState = { _tag: "Growing" }
const empty = Buffer.alloc(0)
const emptyBody: SettledBody = { _tag: "Whole", bytes: empty }

const faultOf = (code: string, message: string): Error => Object.assign(new Error(message), { code })

export class BufferedRequest extends IncomingMessage implements BodySource {
  #body: BodyState = growing
  #bytes = empty
  #size = 0
  #chunks = 0
  /** Whether something has begun to read the request as a stream. */
  #isRead = false
  #reader: ((body: SettledBody) => void) | undefined
  host: RequestHost | undefined
  /** Sends 100 Continue, for a client that waits for it before it sends the body. */
  sendContinue: (() => void) | undefined

  get isWhole(): boolean {
    return this.#body._tag === "Whole"
  }

  whenRead(reader: (body: SettledBody) => void): void {
    this.sendContinue?.()
    if (this.#body._tag === "Growing") this.#reader = reader
    else this.#guard(reader, this.#body)
  }

  /** Makes a growing body fail, and keeps the connection open for the response. */
  failBody(fault: Error): void {
    this.#settle({ _tag: "Failed", fault })
    // Without a listener, Node would throw the error and end the process.
    this.on("error", () => {})
    // Code that reads the stream later would miss this error, so `_read` destroys the request then.
    if (this.#isRead) this.destroy(fault)
  }

  /** Node's parser calls this for each chunk, and with null at the end of the body. */
  override push(chunk: Buffer | null): boolean {
    if (this.#body._tag !== "Growing") return true
    if (chunk === null) {
      const bytes = this.#bytes.subarray(0, this.#size)
      this.#settle(this.#size === 0 ? emptyBody : { _tag: "Whole", bytes })
      this.host?.bodyWhole(this)
      // `super.push` can call the stream's listeners synchronously, and a listener can throw.
      this.#guard(() => {
        if (bytes.length > 0) super.push(bytes)
        super.push(null)
      })
      return true
    }
    const { bodyBytes = 0, bodyChunks = 0 } = this.host?.limits ?? {}
    const size = this.#size + chunk.length
    if (size > bodyBytes) this.host?.bodyFault(faultOf("ERR_BODY_TOO_LARGE", "The body is too large"))
    else if (++this.#chunks > bodyChunks) {
      this.host?.bodyFault(faultOf("ERR_TOO_MANY_CHUNKS", "The body has too many chunks"))
    } else this.#append(chunk, size, bodyBytes)
    return true
  }

  override _read(size: number): void {
    this.sendContinue?.()
    this.#isRead = true
    if (this.#body._tag === "Failed") this.destroy(this.#body.fault)
    else super._read(size)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // Node would also destroy the connection, and with it the response to the faulty body.
    if (this.#body._tag === "Failed") process.nextTick(done, error)
    else super._destroy(error, done)
  }

  #append(chunk: Buffer, size: number, maxSize: number): void {
    if (size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(size, 2 * this.#bytes.length), maxSize))
      this.#bytes.copy(larger, 0, 0, this.#size)
      this.#bytes = larger
    }
    chunk.copy(this.#bytes, this.#size)
    this.#size = size
  }

  #settle(body: SettledBody): void {
    const reader = this.#reader
    this.#body = body
    this.#reader = undefined
    this.#bytes = empty
    // Let Node first parse the remaining bytes of the current read: they can change whether the connection stays open.
    if (reader !== undefined) process.nextTick(() => this.#guard(reader, body))
  }

  /**
   * Calls `reader`, and ends the connection if `reader` throws. Node's parser and the event loop have no catch, so an
   * error within `push` or `nextTick` would end the process.
   */
  #guard<A extends ReadonlyArray<unknown>>(reader: (...values: A) => void, ...values: A): void {
    try {
      reader(...values)
    } catch (defect) {
      this.host?.crash(defect)
    }
  }
}
