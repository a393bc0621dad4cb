/** A connection to a PostgreSQL server that asks for TLS first (PostgreSQL, "SSL Session Encryption"). */
import type { Socket } from "node:net"
import { connect, type ConnectionOptions } from "node:tls"
import { RelayStream } from "./RelayStream.ts"

/** The message SSLRequest (PostgreSQL, "Message Formats"). */
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])

/**
 * Asks the server for TLS before any other byte is sent. Writes wait until the server has replied. When the server has
 * no TLS, it continues without encryption unless `isRequired`. It fails when TLS itself fails.
 */
export class TlsStream extends RelayStream {
  readonly #socket: Socket

  constructor(socket: Socket, tls: ConnectionOptions, isRequired: boolean) {
    super()
    this.#socket = socket
    this.endWith(socket)
    socket.once("data", (reply: Buffer) => {
      const [answer] = reply
      // An error message (E) comes from a server that cannot start a session. Its text is not authentic, so it is not
      // read.
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
        this.carry(socket)
      } else {
        const secured = connect({ ...tls, socket })
        this.endWith(secured)
        secured.once("secureConnect", () => this.carry(secured))
      }
    })
    socket.write(sslRequest)
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#socket.destroy()
    super._destroy(error, callback)
  }
}
