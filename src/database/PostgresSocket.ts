/**
 * A connection to a PostgreSQL server that is cut when the server owes an answer and says nothing, as a network that
 * lost it or a server that froze: else every statement on it would wait, and it would never be replaced.
 */
import { connect, type Socket } from "node:net"

/**
 * How long a server may say nothing while it owes an answer: longer than any statement may take (`statement_timeout`).
 */
const longestSilence = 5_000
const tick = 500

/** Opens connections to the server that `url` names (libpq's URLs). */
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
      // What was written until now counts as answered. If it is not, the next statement on the connection will tell.
      read = bytesRead
      written = bytesWritten
      silentSince = undefined
    } else if (bytesWritten !== written) {
      silentSince ??= performance.now()
      if (performance.now() - silentSince > longestSilence) {
        socket.destroy(new Error(`The server said nothing for ${longestSilence} ms.`))
      }
    }
  }, tick).unref()
  return socket.on("close", () => clearInterval(timer))
}
