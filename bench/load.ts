/** A load generator whose connections each send a request once the response before it has arrived. */
import { connect } from "node:net"

export interface Measured {
  readonly requests: number
  readonly requestsPerSecond: number
  /** The percentiles of the latencies, in milliseconds. */
  readonly p50: number
  readonly p99: number
  /** The number of responses by status. */
  readonly statuses: ReadonlyMap<number, number>
}

/** Sends requests, the bytes of HTTP/1.1 requests, over connections to each of `ports` in turn. */
export const load = async (options: {
  readonly ports: ReadonlyArray<number>
  readonly request: () => string
  readonly connections: number
  /** It stops after this many seconds, or this many requests. */
  readonly seconds?: number
  readonly requests?: number
}): Promise<Measured> => {
  const latencies: Array<number> = []
  const statuses = new Map<number, number>()
  const end = performance.now() + (options.seconds ?? Infinity) * 1000
  let left = options.requests ?? Infinity

  const connection = (port: number) =>
    new Promise<void>((resolve, reject) => {
      const socket = connect(port, "127.0.0.1")
      let pending = ""
      let sentAt = 0
      const send = () => {
        if (left <= 0) {
          socket.end()
          return
        }
        left--
        sentAt = performance.now()
        socket.write(options.request())
      }
      socket.setNoDelay(true)
      socket.setEncoding("latin1")
      socket.setTimeout(30_000, () => socket.destroy(new Error(`Port ${port} sends no response.`)))
      socket.on("connect", send)
      socket.on("error", reject)
      socket.on("close", () => resolve())
      socket.on("data", (chunk: string) => {
        pending += chunk
        const head = pending.indexOf("\r\n\r\n")
        if (head === -1) return
        const length = Number(/content-length: (\d+)/i.exec(pending)?.[1])
        if (pending.length < head + 4 + length) return
        const now = performance.now()
        latencies.push(now - sentAt)
        const status = Number(pending.slice(9, 12))
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        pending = ""
        if (now < end) send()
        else socket.end()
      })
    })

  const startedAt = performance.now()
  await Promise.all(
    Array.from(
      { length: options.connections },
      (_, index) => connection(options.ports[index % options.ports.length] ?? 0)
    )
  )
  const requests = latencies.length
  const requestsPerSecond = requests / (performance.now() - startedAt) * 1000
  latencies.sort((a, b) => a - b)
  const percentile = (p: number) => latencies[Math.floor(requests * p)] ?? NaN
  return { requests, requestsPerSecond, p50: percentile(0.5), p99: percentile(0.99), statuses }
}
