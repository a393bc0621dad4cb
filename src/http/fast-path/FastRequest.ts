/** A request of Node's server as handlers and middleware see it. It replaces Effect's own adapter at a lower cost. */
import { NodeHttpIncomingMessage } from "@effect/platform-node"
import { Effect, Option, Stream } from "effect"
import { Cookies, Headers, HttpIncomingMessage, HttpServerError, HttpServerRequest } from "effect/http"
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import * as JsonBody from "../middleware/JsonBody.ts"

const utf8 = new TextDecoder()
const notCompiled = Effect.die(new Error("Endpoints that read forms or upgrade connections are left to HttpApi."))

/**
 * Adapts Node's request. A body that Node rejects fails with a `RequestParseError`. A body whose connection is closed
 * interrupts its reader.
 */
export class FastRequest extends NodeHttpIncomingMessage.NodeHttpIncomingMessage<HttpServerError.HttpServerError>
  implements HttpServerRequest.HttpServerRequest, JsonBody.BodyReader
{
  readonly [HttpServerRequest.TypeId]: typeof HttpServerRequest.TypeId = HttpServerRequest.TypeId
  readonly url: string
  readonly protocol = undefined
  readonly multipart = notCompiled
  readonly multipartStream = Stream.fromEffect(notCompiled)
  readonly upgrade = notCompiled
  private cachedHeaders: Headers.Headers | undefined
  private cachedBody: Buffer<ArrayBuffer> | undefined
  private cachedText: string | undefined

  constructor(source: IncomingMessage) {
    super(source, (cause) =>
      new HttpServerError.HttpServerError({
        reason: new HttpServerError.RequestParseError({ request: this, reason: "Parse", cause })
      }))
    this.url = source.url ?? ""
  }

  override toJSON(): unknown {
    return HttpIncomingMessage.inspect(this, { _id: "HttpServerRequest", method: this.method, url: this.url })
  }

  get method(): string {
    return this.source.method ?? ""
  }

  get originalUrl(): string {
    const { host } = this.source.headers
    return host === undefined ? this.url : `http://${host}${this.url}`
  }

  override get headers(): Headers.Headers {
    this.cachedHeaders ??= Headers.fromInput(this.source.headers)
    return this.cachedHeaders
  }

  get cookies(): Readonly<Record<string, string>> {
    return Cookies.parseHeader(this.headers.cookie ?? "")
  }

  get peerAddress(): Option.Option<string> {
    return this.remoteAddress
  }

  upgradeWith(): typeof notCompiled {
    return notCompiled
  }

  modify(options: object): HttpServerRequest.HttpServerRequest {
    const changes = Object.entries(options).filter(([, value]) => value !== undefined)
    const modified: FastRequest = Object.create(
      this,
      Object.fromEntries(changes.map(([name, value]) => [name, { value, enumerable: true }]))
    )
    return modified
  }

  override get arrayBuffer(): Effect.Effect<ArrayBuffer, HttpServerError.HttpServerError> {
    return Effect.map(this.body, (body) => body.buffer.slice(body.byteOffset, body.byteOffset + body.length))
  }

  override get text(): Effect.Effect<string, HttpServerError.HttpServerError> {
    return Effect.map(this.body, (body) => {
      this.cachedText ??= utf8.decode(body)
      return this.cachedText
    })
  }

  get [JsonBody.ReadsBody](): Effect.Effect<JsonBody.Body, HttpServerError.HttpServerError> {
    return Effect.map(this.body, (body) => ({
      byteLength: body.length,
      text: isUtf8(body) ? body.toString() : undefined
    }))
  }

  /**
   * The whole body, of `Content-Length` bytes. It does not use Effect's streams, because most bodies have arrived with
   * the head.
   */
  get body(): Effect.Effect<Buffer<ArrayBuffer>, HttpServerError.HttpServerError> {
    return this.cachedBody === undefined
      ? Effect.map(this.readBody(), (body) => {
        this.cachedBody = body
        return body
      })
      : Effect.succeed(this.cachedBody)
  }

  private readBody(): Effect.Effect<Buffer<ArrayBuffer>, HttpServerError.HttpServerError> {
    const { source } = this
    return Effect.callback((resume) => {
      const chunks: Array<Buffer<ArrayBuffer>> = []
      let missing = Number(source.headers["content-length"] ?? 0)
      const onReadable = () => {
        for (let chunk: unknown = source.read(); isBuffer(chunk); chunk = source.read()) {
          chunks.push(chunk)
          missing -= chunk.length
        }
        if (missing > 0) return
        removeListeners()
        const [first] = chunks
        resume(Effect.succeed(first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks)))
      }
      const onError = (cause?: unknown) => {
        removeListeners()
        // No response can be sent once the connection is closed.
        resume(source.socket.destroyed ? Effect.interrupt : Effect.fail(this.onError(cause)))
      }
      const removeListeners = () => source.off("readable", onReadable).off("error", onError)
      if (missing === 0) return resume(Effect.succeed(Buffer.alloc(0)))
      if (source.destroyed) return onError(source.errored)
      source.on("readable", onReadable).on("error", onError)
      return Effect.sync(removeListeners)
    })
  }
}

/** Narrows a chunk to a buffer. Node's parser never uses a `SharedArrayBuffer`, which the type of `Buffer` allows. */
const isBuffer = (chunk: unknown): chunk is Buffer<ArrayBuffer> => chunk instanceof Buffer
