/** Closes connections so that the client still reads the last response. */
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"

/** The maximum time in milliseconds for which a closing connection is read. */
const maxCloseMs = 1_000

/**
 * Closes a connection after its last response. It reads and drops what the client still sends, because unread data
 * would reset the connection and lose the response. After one second it destroys the connection.
 */
export const closeGently = (socket: Duplex): void => {
  socket.end()
  socket.resume()
  setTimeout(() => socket.destroy(), maxCloseMs).unref()
}

/**
 * Makes Node close the connection gently after its last response. Node calls the socket's `destroySoon` then, which
 * would destroy it: a client that still sends a body would lose the response (`test/http/ApiServer.test.ts`).
 */
export const closeGentlyAfterResponse = (socket: Socket): void => {
  socket.destroySoon = () => closeGently(socket)
}
