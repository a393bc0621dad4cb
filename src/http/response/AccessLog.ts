/** The metrics and the log line of each request. */
import { Clock, Context, Effect, LogLevel, Metric, References, Tracer } from "effect"
import { byAttributes } from "../../observability/Metrics.ts"
import type { RequestContext } from "./RequestContext.ts"

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

/**
 * Records the duration of a request and logs the request at level Info. It is one step without a generator, because
 * every request passes here.
 */
export const recordResponse = (
  method: string,
  { keyId = "none", requestId, route: matchedRoute, startedAt }: RequestContext,
  status: number
) =>
  Effect.withFiber((fiber) => {
    const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
    if (span?._tag === "Span" && matchedRoute !== undefined) span.attribute("http.route", matchedRoute)
    const route = matchedRoute ?? "none"
    const durationMs = Number(fiber.getRef(Clock.Clock).monotonicTimeNanosUnsafe() - startedAt) / 1e6
    durations(method, route, String(status)).updateUnsafe(durationMs / 1000, fiber.context)
    return LogLevel.isGreaterThan(fiber.getRef(References.MinimumLogLevel), "Info")
      ? Effect.void
      : Effect.annotateLogs(Effect.logInfo("request"), { method, route, status, durationMs, keyId, requestId })
  })
