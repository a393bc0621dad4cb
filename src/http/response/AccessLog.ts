/** The metrics and the log line of each request. */
import { Clock, Effect, Logger, LogLevel, Metric, References } from "effect"
import { JsonLines } from "../../observability/LogLines.ts"
import { byAttributes } from "../../observability/Metrics.ts"
import { redactPath } from "./RedactedPath.ts"
import type { RequestContext } from "./RequestContext.ts"
import * as ServerSpan from "./ServerSpan.ts"

/** The duration of requests in seconds, named by OpenTelemetry's semantic conventions for HTTP. */
const durations = byAttributes(
  Metric.histogram("http.server.request.duration", {
    description: "Duration of requests on the API port.",
    boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
  }),
  (method: string, route: string, status: string) => ({
    "http.request.method": method,
    "http.route": route,
    "http.response.status_code": status,
    unit: "s"
  })
)

/** The status in the log of a request whose client disconnected before the response (as nginx logs it). */
export const clientClosedRequest = 499

/** The fields of the log line of a request. */
interface Fields {
  readonly method: string
  readonly route: string
  /** The path of a request without a route. */
  readonly path?: string
  readonly status: number
  readonly durationMs: number
  readonly keyId: string
  readonly requestId: string
}

/** Returns `text` as JSON. Usual texts need no escapes. */
const quote = (text: string): string => /^[\w./:-]*$/.test(text) ? `"${text}"` : JSON.stringify(text)

let lastMs = NaN
let lastTimestamp = ""
/** Returns a Unix time in milliseconds in ISO 8601. Requests of one millisecond share the text. */
const formatTime = (ms: number): string => {
  if (ms !== lastMs) {
    lastMs = ms
    lastTimestamp = new Date(ms).toISOString()
  }
  return lastTimestamp
}

/** Returns the line that `Logger.formatJson` would return, at a tenth of its cost. */
const formatLine = (
  { durationMs, keyId, method, path, requestId, route, status }: Fields,
  now: number,
  fiberId: number
) =>
  `{"message":"request","level":"INFO","timestamp":"${formatTime(now)}","annotations":{"method":${quote(method)}` +
  `,"route":${quote(route)}${
    path === undefined ? "" : `,"path":${quote(path)}`
  },"status":${status},"durationMs":${durationMs},"keyId":${quote(keyId)}` +
  `,"requestId":${quote(requestId)}},"spans":{},"fiberId":"#${fiberId}"}`

/**
 * Records the duration of a request and logs the request at level Info. It is one step without a generator, because
 * every request passes here. A request without a route is logged with the path of its `url`, if the parser read one.
 */
export const recordResponse = (
  { method, url }: { readonly method?: string | undefined; readonly url?: string | undefined },
  { keyId = "none", requestId, route: matchedRoute, span, startedAt }: RequestContext,
  status: number
) =>
  Effect.withFiber((fiber) => {
    const clock = fiber.getRef(Clock.Clock)
    if (span !== undefined) ServerSpan.end(span, matchedRoute, status, clock.currentTimeNanosUnsafe())
    const methodName = method ?? "none"
    const route = matchedRoute ?? "none"
    const durationMs = Number(clock.monotonicTimeNanosUnsafe() - startedAt) / 1e6
    durations(methodName, route, String(status)).updateUnsafe(durationMs / 1000, fiber.context)
    if (LogLevel.isGreaterThan(fiber.getRef(References.MinimumLogLevel), "Info")) return Effect.void
    const path = matchedRoute === undefined && url !== undefined ? redactPath(url) : undefined
    const fields = {
      method: methodName,
      route,
      ...path !== undefined && { path },
      status,
      durationMs,
      keyId,
      requestId
    }
    const loggers = fiber.getRef(Logger.CurrentLoggers)
    const json = fiber.getRef(JsonLines)
    if (json === undefined || loggers.size !== 1 || !loggers.has(json.logger)) {
      return Effect.annotateLogs(Effect.logInfo("request"), fields)
    }
    json.write(formatLine(fields, clock.currentTimeMillisUnsafe(), fiber.id))
    return Effect.void
  })
