/**
 * Watches the sockets of the pool, because the driver has no read timeout.
 *
 * Laws, for any order of opens, traffic, silence and closes:
 * 1. A socket is dead if it has been silent for 3.5 seconds, and either never received a byte or the driver has opened
 *    another socket during the silence. The driver opens one to cancel a statement, or when all sockets are in use. The
 *    socket is destroyed at most 3.5 seconds after the later of its last traffic and that opening.
 * 2. A dead socket is destroyed, and with it each socket that has been silent for at least as long. So a pool whose
 *    connections died together is found by the first statement, not by one statement for each connection.
 * 3. A socket with traffic after the dead one's last traffic stays open, also if a statement was just sent on it. The
 *    statement keeps its own deadline.
 * 4. A socket is watched until it closes, however often it was idle. Idle sockets stay open while no socket is dead.
 */
import { type Socket } from "node:net"

/** Longer than `statement_timeout`: without a pooler, a live server responds to each statement within this time. */
export const maxSilenceMs = 3_000
/** Time for the driver to cancel a statement, and to read bytes that arrived while this process was paused. */
export const cancelTimeoutMs = 500

interface Watched {
  /** The traffic up to the start of the present silence. */
  bytes: string
  silentSince: number
}

const bytesOf = ({ bytesRead, bytesWritten }: Socket): string => `${bytesRead}/${bytesWritten}`

/** Returns `open`, with its sockets watched. */
export const watch = (open: () => Socket, now: () => number = () => performance.now()) => {
  const sockets = new Map<Socket, Watched>()
  let lastOpenedAt = 0

  const isDead = ({ bytesRead }: Socket, { silentSince }: Watched): boolean =>
    bytesRead === 0 || lastOpenedAt > silentSince

  const destroySilentSince = (deadSince: number): void => {
    for (const [socket, { bytes, silentSince }] of sockets) {
      if (bytes === bytesOf(socket) && silentSince <= deadSince) {
        sockets.delete(socket)
        socket.destroy()
      }
    }
  }

  return (): Socket => {
    const socket = open()
    lastOpenedAt = now()
    const watched: Watched = { bytes: "", silentSince: lastOpenedAt }
    sockets.set(socket, watched)
    // Node's timer starts anew with each byte that is read or written, and fires once for each start.
    socket.setTimeout(maxSilenceMs).on("timeout", () => {
      const bytes = bytesOf(socket)
      if (watched.bytes !== bytes) Object.assign(watched, { bytes, silentSince: now() - maxSilenceMs })
      setTimeout(() => {
        if (!sockets.has(socket) || bytes !== bytesOf(socket)) return
        if (isDead(socket, watched)) destroySilentSince(watched.silentSince)
        else socket.setTimeout(maxSilenceMs)
      }, cancelTimeoutMs).unref()
    })
    return socket.on("close", () => void sockets.delete(socket))
  }
}
