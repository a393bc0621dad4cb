/** Cancels the statement of a PostgreSQL session (PostgreSQL, "Canceling Requests in Progress"). */
import type { Duplex } from "node:stream"

const backendKeyData = 0x4b
const readyForQuery = 0x5a
const cancelRequestCode = 80_877_102

/** The timeout of a CancelRequest in milliseconds. */
const timeoutMs = 1_000

/** Reads the key of a session when it starts, and sends it on another connection to cancel the session's statement. */
export class StatementCanceller {
  readonly #openConnection: () => Duplex
  /** The process id and the secret of the session, as BackendKeyData has them. */
  #key: Buffer | undefined

  /** `stream` is a connection that was just opened. `openConnection` opens another one to the same server. */
  constructor(stream: Duplex, openConnection: () => Duplex) {
    this.#openConnection = openConnection
    let bytes: Buffer = Buffer.alloc(0)
    const read = (chunk: Buffer): void => {
      bytes = Buffer.concat([bytes, chunk])
      while (bytes.length >= 5) {
        const end = 1 + bytes.readInt32BE(1)
        if (bytes.length < end) return
        if (bytes[0] === backendKeyData) this.#key = Buffer.from(bytes.subarray(5, end))
        if (bytes[0] === readyForQuery || end < 5) {
          stream.off("data", read)
          return
        }
        bytes = bytes.subarray(end)
      }
    }
    stream.on("data", read)
  }

  /** Asks the server to cancel the statement. The server may ignore it, and replies on the session alone. */
  cancel(): void {
    if (this.#key === undefined) return
    const request = Buffer.alloc(8 + this.#key.length)
    request.writeInt32BE(request.length, 0)
    request.writeInt32BE(cancelRequestCode, 4)
    this.#key.copy(request, 8)
    const connection = this.#openConnection()
    const timer = setTimeout(() => connection.destroy(), timeoutMs)
    connection.on("error", () => {}).on("close", () => clearTimeout(timer))
    // The server closes the connection. PgBouncer ignores the request of a client that closes it first.
    connection.resume().write(request)
  }
}
