/** An HTTP proxy that fails as a proxy or a network fails for a short time. */
import { Effect } from "effect"
import { request } from "node:http"
import { serve } from "./HttpServer.ts"

/** A request that the proxy forwarded, and the service's response to it. */
export interface Forwarded {
  readonly method: string | undefined
  readonly status: number | undefined
  readonly isReplayed: boolean
}

/**
 * Forwards requests to `address` for as long as the scope lasts. It responds with 502 to the first request, and with
 * 504 to the second, and drops the response to the third. `forwarded` are the requests that reached the service.
 */
export const run = Effect.fnUntraced(function*(address: string) {
  let received = 0
  const forwarded: Array<Forwarded> = []
  const url = yield* serve((incoming, outgoing) => {
    const attempt = ++received
    if (attempt <= 2) {
      outgoing.writeHead(attempt === 1 ? 502 : 504, { "content-type": "text/html" }).end("<h1>Not now</h1>")
      return
    }
    const { headers, method, url: path = "/" } = incoming
    const upstream = request(new URL(path, address), { headers, ...method !== undefined && { method } })
    upstream.on("response", (response) => {
      const isReplayed = response.headers["idempotent-replayed"] === "true"
      forwarded.push({ method, status: response.statusCode, isReplayed })
      if (attempt === 3) {
        incoming.socket.destroy()
        response.resume()
      } else {
        outgoing.writeHead(response.statusCode ?? 500, response.headers)
        response.pipe(outgoing)
      }
    })
    incoming.pipe(upstream)
  })
  return { url, forwarded }
})
