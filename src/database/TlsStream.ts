/** A connection to a PostgreSQL server that asks for TLS first (PostgreSQL, "SSL Session Encryption"). */
import type { Socket } from "node:net"
import { Duplex } from "node:stream"
import { connect, type ConnectionOptions } from "node:tls"

/** The message SSLRequest (PostgreSQL, "Message Formats"). */
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])

/**
 * Asks the server for TLS before any other byte is sent. Writes wait until the server has replied. When the server has
 * no TLS, it continues without encryption unless `isRequired`. It fails when TLS itself fails.
 */
export class TlsStream extends Duplex {
  readonly #socket: Socket
  /** The stream that carries the messages: the TLS connection, or the socket itself. */
  #carrier: Duplex | undefined
  #onReady: ((carrier: Duplex) => void) | undefined

  constructor(socket: Socket, tls: ConnectionOptions, isRequired: boolean) {
    super()
    this.#socket = socket
    const onError = (error: Error) => this.destroy(error)
    const onClose = () => this.destroy()
    socket.on("error", onError).on("close", onClose)
    socket.once("data", (reply: Buffer) => {
      const [answer] = reply
      // An error message (E) comes from a server that cannot start a session. Its text is not authentic, so it is not read.
      if (answer === 0x45) {
        this.destroy(new Error("The server cannot start a session, and closed the connection."))
        return
      }
      // One byte alone is valid: a man in the middle could inject more before encryption (CVE-2021-23222).
      if (reply.length !== 1 || (answer !== 0x53 && answer !== 0x4e)) {
        this.destroy(new Error("The server sent an invalid reply to SSLRequest."))
      } else if (answer === 0x4e && isRequired) {
        this.destroy(
          new Error("The server has no TLS, which sslmode in DATABASE_URL requires. Turn on its setting ssl.")
        )
      } else if (answer === 0x4e) {
        this.#carry(socket)
      } else {
        const secured = connect({ ...tls, socket })
        secured.on("error", onError).on("close", onClose)
        secured.once("secureConnect", () => this.#carry(secured))
      }
    })
    socket.write(sslRequest)
  }

  #carry(carrier: Duplex): void {
    this.#carrier = carrier
    carrier.on("data", (chunk: Buffer) => {
      if (!this.push(chunk)) carrier.pause()
    })
    carrier.on("end", () => this.push(null))
    this.#onReady?.(carrier)
  }

  override _read(): void {
    this.#carrier?.resume()
  }

  /** Runs `use` now, or when the server has replied. A stream has at most one write in progress. */
  #whenReady(use: (carrier: Duplex) => void): void {
    if (this.#carrier === undefined) this.#onReady = use
    else use(this.#carrier)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#whenReady((carrier) => {
      if (carrier.write(chunk)) callback()
      else carrier.once("drain", callback)
    })
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#whenReady((carrier) => void carrier.end(callback))
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#carrier?.destroy()
    this.#socket.destroy()
    callback(error)
  }
}
