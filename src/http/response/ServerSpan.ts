/**
 * The span of each request on the API port, with the attributes of OpenTelemetry's semantic conventions for HTTP
 * servers. The fast path and Effect's HTTP server share it. It has no query and no headers, which can hold secrets.
 */
import { Clock, Context, Effect, Exit, Option, Tracer } from "effect"
import { Headers, HttpTraceContext } from "effect/http"
import { redactPath } from "./RedactedPath.ts"

/** The head of a request, and the address of the peer. */
interface Head {
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly peer: string | undefined
}

/** Starts the span of a request. Without a tracer that exports spans there is none. */
export type Start = (head: Head) => Tracer.Span | undefined

const propagationHeaders = ["traceparent", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags"]

/** Returns the caller's span, which `traceparent` (W3C Trace Context) or the headers of B3 name. */
const parentOf = (headers: Head["headers"]): Option.Option<Tracer.ExternalSpan> => {
  if (headers.traceparent === undefined && headers.b3 === undefined && headers["x-b3-traceid"] === undefined) {
    return Option.none()
  }
  return HttpTraceContext.fromHeaders(
    Headers.fromInput(propagationHeaders.map((name): [string, string] => [name, headers[name]?.toString() ?? ""]))
  )
}

/** Returns a function that starts spans with the tracer of the context. */
export const makeStart = Effect.gen(function*(): Effect.gen.Return<Start> {
  const tracer = yield* Tracer.Tracer
  const clock = yield* Clock.Clock
  if (tracer === Tracer.nativeTracer) return () => undefined
  return ({ headers, method, peer, url }) => {
    const parent = parentOf(headers)
    const span = tracer.span({
      name: `http.server ${method}`,
      parent,
      annotations: Context.empty(),
      links: [],
      startTime: clock.currentTimeNanosUnsafe(),
      kind: "server",
      root: Option.isNone(parent),
      sampled: Option.isNone(parent) || parent.value.sampled
    })
    if (span.sampled) {
      span.attribute("http.request.method", method)
      const path = redactPath(url)
      if (path !== undefined) span.attribute("url.path", path)
      span.attribute("url.scheme", "http")
      if (peer !== undefined) span.attribute("client.address", peer)
      const userAgent = headers["user-agent"]
      if (userAgent !== undefined) span.attribute("user_agent.original", userAgent)
    }
    return span
  }
})

/** Ends the span of a request. A status from 500 on is an error of the server, and others are none. */
export const end = (span: Tracer.Span, route: string | undefined, status: number, endTime: bigint): void => {
  if (span.sampled) {
    if (route !== undefined) span.attribute("http.route", route)
    span.attribute("http.response.status_code", status)
  }
  span.end(endTime, status < 500 ? Exit.void : Exit.fail(`The response has status ${status}`))
}
