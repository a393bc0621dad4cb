/** Serves `/healthz`, `/readyz` (`database/Readiness.ts`) and `/metrics`, which require no admin token. */
import { Config, Effect, Metric, Option, Ref, Schedule } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { ServiceUnavailable } from "../api/Errors.ts"
import { Settings } from "../config/Settings.ts"
import { newestVersion as schemaVersion } from "../database/Database.ts"
import { Readiness } from "../database/Readiness.ts"
import { GracefulShutdown } from "../http/RequestLifecycle.ts"
import { reportPaths } from "../http/RoutePaths.ts"
import { gauge } from "../observability/MetricConstructors.ts"
import { serviceVersion } from "../observability/ProcessMetrics.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"

export const paths: ReadonlyArray<string> = Object.values(reportPaths)

const ready = gauge("ready", "1 while the database responds within a second, else 0.")

const ending = Effect.fail(new ServiceUnavailable({ message: "The service is shutting down." }))

export const layer = HttpRouter.use(Effect.fnUntraced(function*(router) {
  const [limiter, draining, readiness] = [yield* RateLimiter, yield* GracefulShutdown, yield* Readiness]
  const revision = yield* Settings.buildRevision.config
  const environment = Option.getOrUndefined(yield* Config.option(Settings.environment.config))
  const health = { status: "healthy", version: serviceVersion, revision, schemaVersion }
  yield* router.add("GET", reportPaths.health, HttpServerResponse.jsonUnsafe(health))
  // During an outage, `readiness` fails with the error that `runService.ts` chooses (`api/DatabaseErrors.ts`).
  yield* router.add("GET", reportPaths.readiness, () =>
    Effect.map(
      Effect.flatMap(Ref.get(draining), (isEnding) => isEnding ? ending : Effect.andThen(readiness, limiter.counting)),
      (limits) => HttpServerResponse.jsonUnsafe({ status: "ready", limits, environment })
    ))
  const updateReady = Effect.flatMap(Effect.isSuccess(readiness), (isReady) => Metric.update(ready, Number(isReady)))
  // OTLP exports the gauge's last value, so update the gauge even if `/metrics` is not scraped.
  yield* Effect.forkScoped(Effect.repeat(updateReady, Schedule.fixed("15 seconds")))
  const report = Effect.andThen(updateReady, PrometheusMetrics.format())
  const contentType = "text/plain; version=0.0.4; charset=utf-8"
  yield* router.add(
    "GET",
    reportPaths.metrics,
    Effect.map(report, (text) => HttpServerResponse.text(text, { contentType }))
  )
}))
