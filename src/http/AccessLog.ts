/** The metrics and the log line of each request on the API port. */
import { Clock, Effect, Logger, LogLevel, Metric, References } from "effect"
import { AccessLogEnabled, JsonLines } from "../observability/LogLines.ts"
import { byAttributes } from "../observability/Metrics.ts"
import type { Call } from "./Call.ts"

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

/** The methods of the metric. Others are one label, so that clients cannot make series without end. */
const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])

/** The status in the log of a request whose client disconnected before the response (as nginx logs it). */
export const clientAborted = 499

/**
 * Returns the first 200 characters of the path of a URL, without the query, which can hold secrets. It hides the
 * secrets of keys and tokens, and has only visible ASCII characters, so that no client writes control characters to a
 * terminal. Returns `undefined` for a target without a path, such as the authority of CONNECT.
 */
const redactPath = (url: string): string | undefined => {
  // The absolute form of a target has an authority, which can contain a password.
  const [path = ""] = url.replace(/^[a-z][a-z\d+.-]*:\/\/[^/?#]*/i, "").split(/[?;#]/, 1)
  if (!path.startsWith("/")) return undefined
  const redacted = path.replaceAll(/(psk|adm)(_|%5f)[\w%]+/gi, "$1_…").replaceAll(
    /[^!-~…]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`
  )
  return redacted.length > 200 ? `${redacted.slice(0, 200)}…` : redacted
}

/**
 * Records the duration of a request and logs the request at level Info. It is one step without a generator, because
 * every request passes here. A request without a route is logged with its path.
 */
export const recordResponse = (
  { method, url }: { readonly method: string; readonly url: string },
  { endpoint, keyId = "none", requestId, startedAt }: Call,
  status: number
) =>
  Effect.withFiber((fiber) => {
    const clock = fiber.getRef(Clock.Clock)
    const route = endpoint?.path ?? "none"
    const durationMs = Number(clock.monotonicTimeNanosUnsafe() - startedAt) / 1e6
    const label = methods.has(method) ? method : "_OTHER"
    durations(label, route, String(status)).updateUnsafe(durationMs / 1000, fiber.context)
    if (!fiber.getRef(AccessLogEnabled)) return Effect.void
    if (LogLevel.isGreaterThan(fiber.getRef(References.MinimumLogLevel), "Info")) return Effect.void
    const path = endpoint === undefined ? redactPath(url) : undefined
    const loggers = fiber.getRef(Logger.CurrentLoggers)
    const json = fiber.getRef(JsonLines)
    if (json === undefined || loggers.size !== 1 || !loggers.has(json.logger)) {
      const annotations = { method, route, ...path !== undefined && { path }, status, durationMs, keyId, requestId }
      return Effect.annotateLogs(Effect.logInfo("request"), annotations)
    }
    // The line that `Logger.formatJson` would return, at a tenth of its cost.
    json.write(
      `{"message":"request","level":"INFO","timestamp":"${new Date(clock.currentTimeMillisUnsafe()).toISOString()}",` +
        `"annotations":{"method":${JSON.stringify(method)},"route":"${route}",` +
        `${path === undefined ? "" : `"path":${JSON.stringify(path)},`}"status":${status},"durationMs":${durationMs},` +
        `"keyId":${JSON.stringify(keyId)},"requestId":"${requestId}"},"spans":{},"fiberId":"#${fiber.id}"}`
    )
    return Effect.void
  })
