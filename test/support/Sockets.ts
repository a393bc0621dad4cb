/** Raw sockets: requests that no HTTP client would send, byte by byte. */
import { Effect } from "effect"
import { connect } from "node:net"

export type ReceivedResponse = Readonly<{ status: number; headers: Headers; text: string }>

/** Returns a message as bytes. `KEY` stands for a header with an API key. */
export const message = (line: string, fields: ReadonlyArray<string> = [], body = "") =>
  [line, ...fields, "", body].join("\r\n")

/** Returns the response once the server closes. `drip` is sent every half second. `halfCloses` ends one side. */
export const sendBytes = (port: number, bytes: string, { allowHalfOpen = false, drip = "", halfCloses = false } = {}) =>
  Effect.promise(() =>
    new Promise<ReceivedResponse>((resolve, reject) => {
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen })
      socket.write(bytes, "latin1")
      if (halfCloses) socket.end()
      const dripTimer = drip === "" ? undefined : setInterval(() => socket.write(drip), 500)
      let received = ""
      socket.setEncoding("utf8").on("data", (chunk: string) => void (received += chunk))
      // A server that closes with unread data resets the connection after its response.
      socket.on("error", (error) => received === "" && reject(error))
      socket.on("close", () => {
        clearInterval(dripTimer)
        const [head = "", ...body] = received.split("\r\n\r\n")
        const [status, ...lines] = head.split("\r\n")
        const headers = new Headers(lines.map((line) => line.split(/:(.*)/, 2) as [string, string]))
        resolve({ status: Number(status?.split(" ")[1]), headers, text: body.join("\r\n\r\n") })
      })
    })
  )

export const statusesOf = ({ status, text }: ReceivedResponse) => [
  status,
  ...text.matchAll(/HTTP\/1\.1 (\d+)/g).map(([, code]) => Number(code))
]

/** Opens connections that send `bytes`, and never read. The scope destroys them. */
export const openConnections = (port: number, connections: number, { bytes = "", localAddress = "127.0.0.1" }) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      Array.from({ length: connections }, () => {
        const socket = connect({ port, host: "127.0.0.1", localAddress }, () => socket.write(bytes))
        return socket.on("error", () => {})
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )
