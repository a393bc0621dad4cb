import { Clock, Effect, Logger, LogLevel, Predicate, Record, References } from "effect"
import type { HttpServerResponse } from "effect/http"
import type { ApiError } from "../api/Errors.ts"
import { redactSecrets } from "../api/Secrets.ts"
import { AccessLogEnabled, JsonLines } from "../observability/LogReferences.ts"
import { byAttributes, histogramOfSeconds } from "../observability/MetricConstructors.ts"
import type { RequestContext } from "./RequestContext.ts"
import type { RequestHead } from "./RequestHead.ts"

const durationSeconds = byAttributes(
  histogramOfSeconds("http_server_request_duration", "Duration of requests on the API port."),
  (method: string, route: string, status: string) => ({
    "http.request.method": method,
    "http.route": route,
    "http.response.status_code": status
  })
)

/** Other methods get the metric label `_OTHER`, so that clients cannot create many time series. */
const labelledMethods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])

/**
 * Returns the path of a URL without its query, with secrets redacted, and cut after 200 characters. Percent-encodes all
 * but visible ASCII and the `…` of a redacted secret, because control characters could manipulate an operator's
 * terminal. Returns `undefined` if the URL has no path.
 */
const redactPath = (url: string): string | undefined => {
  // Remove the scheme and the authority of an absolute URL, because the latter may contain `user:password@`.
  const target = url.replace(/^[a-z][a-z\d+.-]*:\/\/[^/?#]*/i, "")
  // Redact before cutting, because a secret that is cut in two would no longer be recognized.
  const [path = ""] = redactSecrets(target).split(/[?;#]/, 1)
  if (!path.startsWith("/")) return undefined
  const redacted = path.replaceAll(
    /[^!-~…]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`
  )
  return redacted.length > 200 ? `${redacted.slice(0, 200)}…` : redacted
}

/** Returns the fields that the message of a 400 names, or `undefined` if there are none. */
const invalidFields = ({ message, status }: ApiError): string | undefined => {
  if (status !== 400) return undefined
  const names = message.slice(0, 2_000).match(/\b(?:path|query|header|body)(?:\.[\w-]{1,64})*(?=: )/g)
  return names?.map(redactSecrets).join()
}

type Head = Pick<RequestHead, "method" | "url">
type Status = Pick<HttpServerResponse.HttpServerResponse, "status">

/**
 * Makes a function that records the duration of a request, writes its log line, and succeeds with its response. The
 * function writes no line if `ACCESS_LOG` is `false`, or if `LOG_LEVEL` is above `info`.
 */
export const make = Effect.gen(function*() {
  const isEnabled = yield* AccessLogEnabled
  const json = yield* JsonLines
  return <Response extends Status>({ method, url }: Head, context: RequestContext, response: Response) =>
    Effect.withFiber((fiber): Effect.Effect<Response> => {
      const { status } = response
      const { endpoint, error, keyId = "none", rejectedKey, requestId, startedAtNs, traceId, window } = context
      const clock = fiber.getRef(Clock.Clock)
      const route = endpoint?.path ?? "none"
      const durationMs = Number(clock.monotonicTimeNanosUnsafe() - startedAtNs) / 1e6
      const label = labelledMethods.has(method) ? method : "_OTHER"
      durationSeconds(label, route, String(status)).updateUnsafe(durationMs / 1000, fiber.context)
      if (!isEnabled || LogLevel.isGreaterThan(fiber.getRef(References.MinimumLogLevel), "Info")) {
        return Effect.succeed(response)
      }
      const annotations = {
        method,
        route,
        path: endpoint === undefined ? redactPath(url) : undefined,
        status,
        error: error?.code,
        fields: error && invalidFields(error),
        window,
        durationMs,
        keyId: rejectedKey?.keyId ?? keyId,
        rejection: rejectedKey?.rejection,
        address: rejectedKey?.address,
        requestId,
        traceId
      }
      const loggers = fiber.getRef(Logger.CurrentLoggers)
      if (json === undefined || loggers.size !== 1 || !loggers.has(json.logger)) {
        const defined = Record.filter(annotations, Predicate.isNotUndefined)
        return Effect.as(Effect.annotateLogs(Effect.logInfo("request"), defined), response)
      }
      // Hot path: write the same fields as `Logger.formatJson`, without Effect's logger (cost: docs/performance.md).
      const timestamp = new Date(clock.currentTimeMillisUnsafe()).toISOString()
      json.write(
        `{"message":"request","level":"INFO","timestamp":"${timestamp}","annotations":${JSON.stringify(annotations)},` +
          `"spans":{},"fiberId":"#${fiber.id}"}`
      )
      return Effect.succeed(response)
    })
})
