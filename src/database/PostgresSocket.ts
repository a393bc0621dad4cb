/**
 * A connection to a PostgreSQL server that is closed when the server owes a reply and stays silent, after a network
 * failure or a freeze. Otherwise every statement on it would wait, and the connection would never be replaced.
 */
import { connect, type Socket } from "node:net"

/** The maximum silence in milliseconds while a reply is due. It exceeds the longest statement (`statement_timeout`). */
const maxSilenceMs = 5_000
const tick = 500

/** Returns a function that opens connections to the server of `url` (libpq's URLs). */
export const opener = (url: string) => (): Socket => {
  const { hostname, port, searchParams } = new URL(url)
  const host = searchParams.get("host") ?? decodeURIComponent(hostname.replace(/^\[|\]$/g, ""))
  const portNumber = Number(searchParams.get("port") ?? (port || 5432))
  return watched(
    host.startsWith("/")
      ? connect(`${host}/.s.PGSQL.${portNumber}`)
      : connect({ host: host || "localhost", port: portNumber, noDelay: true })
  )
}

const watched = (socket: Socket): Socket => {
  let read = 0
  let written = 0
  let silentSince: number | undefined
  const timer = setInterval(() => {
    const { bytesRead, bytesWritten } = socket
    if (bytesRead !== read) {
      // Data written so far counts as replied to. If that is wrong, the next statement on the connection shows it.
      read = bytesRead
      written = bytesWritten
      silentSince = undefined
    } else if (bytesWritten !== written) {
      silentSince ??= performance.now()
      if (performance.now() - silentSince > maxSilenceMs) {
        socket.destroy(new Error(`The server said nothing for ${maxSilenceMs} ms.`))
      }
    }
  }, tick).unref()
  return socket.on("close", () => clearInterval(timer))
}
