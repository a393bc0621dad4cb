/** A load generator: as many requests as the service answers, over connections that each wait for their answer. */
import { connect } from "node:net"

export interface Measured {
  readonly requestsPerSecond: number
  /** Milliseconds. */
  readonly p50: number
  readonly p99: number
  /** How many answers had another status than the one expected. */
  readonly unexpected: number
}

/** Sends `request`, the bytes of one HTTP/1.1 request, over and over for `seconds`. */
export const load = async (options: {
  readonly port: number
  readonly request: string
  readonly status: number
  readonly connections: number
  readonly seconds: number
}): Promise<Measured> => {
  const latencies: Array<number> = []
  const expected = `HTTP/1.1 ${options.status} `
  let unexpected = 0
  const end = performance.now() + options.seconds * 1000

  const connection = () =>
    new Promise<void>((resolve, reject) => {
      const socket = connect(options.port, "127.0.0.1")
      let pending = ""
      let sentAt = 0
      const send = () => {
        sentAt = performance.now()
        socket.write(options.request)
      }
      socket.setNoDelay(true)
      socket.setEncoding("latin1")
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
        if (!pending.startsWith(expected)) unexpected++
        pending = ""
        if (now < end) send()
        else socket.end()
      })
    })

  const startedAt = performance.now()
  await Promise.all(Array.from({ length: options.connections }, connection))
  const elapsed = (performance.now() - startedAt) / 1000
  latencies.sort((a, b) => a - b)
  const percentile = (p: number) => latencies[Math.floor(latencies.length * p)] ?? NaN
  return {
    requestsPerSecond: latencies.length / elapsed,
    p50: percentile(0.5),
    p99: percentile(0.99),
    unexpected
  }
}
