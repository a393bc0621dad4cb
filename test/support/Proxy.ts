/** A TCP proxy that simulates faults of a network or a server. */
import { Effect } from "effect"
import { connect, createServer, type Socket } from "node:net"

export type Fault =
  /** Replies take half a second. */
  | "slow"
  /** Open connections are cut, and new connections are cut at once. */
  | "refusing"
  /** Replies stop after their first byte. Connections stay open. */
  | "hanging"

/** Forwards connections to the port `target` of this machine for as long as the scope lasts. */
export const run = (target: number) =>
  Effect.acquireRelease(
    Effect.promise(() =>
      new Promise<{
        readonly port: number
        setFault(fault: Fault | undefined): void
        /** Drops all data on the connections that are open now. They stay open, and new connections work. */
        silence(): void
        /** Forwards new connections to another port. */
        retarget(port: number): void
        /** The number of connections that were refused. */
        refused(): number
        close(): void
      }>((resolve) => {
        let currentTarget = target
        let fault: Fault | undefined
        const sockets = new Set<Socket>()
        /** The number of connections so far, and the number of those that are silent. */
        let connections = 0
        let silent = 0
        let refused = 0
        const server = createServer((client) => {
          if (fault === "refusing") {
            refused++
            client.destroy()
            return
          }
          const upstream = connect(currentTarget, "127.0.0.1")
          const number = ++connections
          let hung = false
          /** Replies in transit, with their arrival times. */
          const late: Array<{ readonly chunk: Buffer; readonly at: number }> = []
          const deliver = () => {
            while (late[0] !== undefined && late[0].at <= performance.now()) client.write(late.shift()?.chunk ?? "")
            if (late[0] !== undefined) setTimeout(deliver, Math.ceil(late[0].at - performance.now()))
          }
          const end = () => {
            client.destroy()
            upstream.destroy()
            sockets.delete(client)
            sockets.delete(upstream)
          }
          for (const socket of [client, upstream]) {
            sockets.add(socket)
            socket.setNoDelay(true)
            socket.on("error", end)
            socket.on("close", end)
          }
          client.on("data", (chunk: Buffer) => number > silent && upstream.write(chunk))
          upstream.on("data", (chunk: Buffer) => {
            if (hung || number <= silent) return
            if (fault === "slow" || late.length > 0) {
              // No reply overtakes another.
              late.push({ chunk, at: Math.max(performance.now() + (fault === "slow" ? 500 : 0), late.at(-1)?.at ?? 0) })
              if (late.length === 1) deliver()
            } else if (fault === "hanging") {
              hung = true
              client.write(chunk.subarray(0, 1))
            } else {
              client.write(chunk)
            }
          })
        })
        server.listen(0, "127.0.0.1", () => {
          const address = server.address()
          resolve({
            port: typeof address === "object" && address !== null ? address.port : 0,
            setFault(next) {
              fault = next
              if (fault === "refusing") { for (const socket of sockets) socket.destroy() }
            },
            silence() {
              silent = connections
            },
            retarget(port) {
              currentTarget = port
            },
            refused: () => refused,
            close() {
              for (const socket of sockets) socket.destroy()
              server.close()
            }
          })
        })
      })
    ),
    (proxy) => Effect.sync(() => proxy.close())
  )
