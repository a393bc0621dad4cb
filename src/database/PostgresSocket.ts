/** Connections to a PostgreSQL server. */
import { connect, type Socket } from "node:net"
import type { Duplex } from "node:stream"
import type { Server } from "../config/ConnectionString.ts"
import { StatementCanceller } from "./StatementCanceller.ts"
import { TlsStream } from "./TlsStream.ts"

/**
 * The maximum silence in milliseconds while the server owes a reply. It exceeds the longest statement
 * (`statement_timeout`). With two ticks and the time of a new connection it is less than 5 seconds.
 */
const maxSilenceMs = 4_000
const tick = 250

/**
 * The silence in milliseconds after which a statement behind a pooler is canceled. With a tick it is the
 * `statement_timeout` of connections without a pooler.
 */
const cancelAfterMs = 3_250

/** The server owes a reply and said nothing for longer than any statement lasts. */
export class SilentServer extends Error {
  override readonly name = "SilentServer"
  override readonly message = `The server sent nothing for ${maxSilenceMs} ms.`
}

const openSocket = ({ host, port }: Server): Socket =>
  host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true })

/** The driver's own TLS has no fallback to plain text with options, and would hide the replies from `watch`. */
const addTls = (socket: Socket, { encryption, tls }: Server): Duplex =>
  encryption === "none" ? socket : new TlsStream(socket, tls, encryption === "required")

/** Opens a connection. */
export const open = (server: Server): Duplex => addTls(openSocket(server), server)

/**
 * Opens a connection that is closed when the server owes a reply and stays silent, after a network failure or a freeze.
 * Otherwise every statement on it would wait, and it would never be replaced.
 */
export const openWatched = (server: Server): Duplex => {
  const socket = openSocket(server)
  return watch(addTls(socket, server), socket)
}

/**
 * Opens a watched connection to a pooler, which passes no `statement_timeout` on: statements that take as long are
 * canceled instead.
 */
export const openPooled = (server: Server): Duplex => {
  const socket = openSocket(server)
  const stream = addTls(socket, server)
  const canceller = new StatementCanceller(stream, () => open(server))
  return watch(stream, socket, () => canceller.cancel())
}

/** ReadyForQuery, the last message of each reply, without its last byte, the state of the transaction. */
const readyForQuery = Buffer.from([0x5a, 0, 0, 0, 5])
const readyForQueryBytes = readyForQuery.length + 1

/**
 * Closes `stream` when bytes were sent after the last complete reply and `socket`, which carries it, is silent.
 * `cancel` runs once in each silence, before that.
 */
const watch = (stream: Duplex, socket: Socket, cancel?: () => void): Duplex => {
  let tail: Buffer = Buffer.alloc(0)
  /** The bytes that were sent when the last complete reply arrived. Until the first one, connecting has a timeout. */
  let answered: number | undefined
  let read = 0
  let silentSince: number | undefined
  let isCanceled = false
  stream.on("data", (chunk: Buffer) => {
    tail = chunk.length < readyForQueryBytes ? Buffer.concat([tail, chunk]) : chunk
    tail = tail.subarray(-readyForQueryBytes)
    const isReady = tail.length === readyForQueryBytes && readyForQuery.compare(tail, 0, readyForQuery.length) === 0
    answered = isReady ? socket.bytesWritten : answered
  })
  const timer = setInterval(() => {
    const isDue = answered !== undefined && socket.bytesWritten !== answered
    if (!isDue || socket.bytesRead !== read) {
      read = socket.bytesRead
      silentSince = undefined
      isCanceled = false
      return
    }
    silentSince ??= performance.now()
    const silenceMs = performance.now() - silentSince
    if (silenceMs > maxSilenceMs) {
      stream.destroy(new SilentServer())
    } else if (silenceMs > cancelAfterMs && !isCanceled) {
      isCanceled = true
      cancel?.()
    }
  }, tick).unref()
  return stream.on("close", () => clearInterval(timer))
}
