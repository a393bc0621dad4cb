import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Context, Effect, Layer, Metric, Option, Ref, Schedule } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { resolve } from "node:path"
import { AdminToken } from "../api-keys/AdminToken.ts"
import { AdminApi } from "../api/AdminApi.ts"
import { ServiceUnavailable } from "../api/Errors.ts"
import { commandPrefix, Settings } from "../config/Settings.ts"
import { newestVersion as schemaVersion } from "../database/Database.ts"
import { Readiness } from "../database/Readiness.ts"
import * as CachedDocument from "../http/CachedDocument.ts"
import * as PortMiddleware from "../http/PortMiddleware.ts"
import { isAllowedAmong } from "../http/RequestHead.ts"
import { reportPaths } from "../http/RoutePaths.ts"
import * as NodeServer from "../node-server/NodeServer.ts"
import { gauge } from "../observability/MetricConstructors.ts"
import { serviceVersion } from "../observability/ProcessMetrics.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import * as AdminAuthentication from "./AdminAuthentication.ts"
import * as AdminHandlers from "./AdminHandlers.ts"
import * as ConsoleFiles from "./ConsoleFiles.ts"

const ready = gauge("ready", "1 while the database responds within a second, else 0.")

const ending = Effect.fail(new ServiceUnavailable({ message: "The service is shutting down." }))

const reports = HttpRouter.use(Effect.fnUntraced(function*(router) {
  const [limiter, draining, readiness] = [yield* RateLimiter, yield* PortMiddleware.GracefulShutdown, yield* Readiness]
  const revision = yield* Settings.buildRevision.config
  const environment = Option.getOrUndefined(yield* Config.option(Settings.environment.config))
  const health = { status: "healthy", version: serviceVersion, revision, schemaVersion }
  yield* router.add("GET", reportPaths.health, HttpServerResponse.jsonUnsafe(health))
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

const openApi = CachedDocument.serveJson("/admin/openapi.json", () => OpenApi.fromApi(AdminApi))

const probes = new Set<string>(Object.values(reportPaths))

const otherPaths = [...Object.values(reportPaths), "/admin/openapi.json", ...ConsoleFiles.paths]

const logStart = Effect.gen(function*() {
  const { address } = yield* HttpServer.HttpServer
  const [url, { source }] = [HttpServer.formatAddress(address), yield* AdminToken]
  const environment = Option.getOrElse(yield* Config.option(Settings.environment.config), () => "none")
  const directory = resolve(yield* Settings.dataDir.config)
  const variables = [
    address._tag !== "UnixPathAddress" && address.port !== 9_090 ? `MANAGEMENT_PORT=${address.port} ` : "",
    source !== Settings.adminToken.name && directory !== resolve("data") ? `DATA_DIR='${directory}' ` : ""
  ].join("")
  yield* Effect.annotateLogs(
    Effect.logInfo(`Management API and web console on ${url}; the admin token is in ${source}`),
    { environment, schemaVersion }
  )
  const token = source === Settings.adminToken.name ? "the same ADMIN_TOKEN and" : ""
  yield* Effect.logInfo(
    `Issue API keys with${token && ` ${token}`}: ${variables}${commandPrefix} keys issue --name NAME`
  )
})

/** The management port listens. Its effect logs where, and how to issue keys. */
export class ManagementListens extends Context.Service<ManagementListens, { readonly logStart: Effect.Effect<void> }>()(
  "petstore/management/ManagementListens"
) {}

const address = { host: Settings.managementHost, port: Settings.managementPort }

export const layer = Layer.unwrap(Effect.gen(function*() {
  const names = [yield* Settings.managementHost.config, ...yield* Settings.managementAllowedHosts.config]
  const trustedProxies = yield* Settings.managementTrustedProxies.config
  const hooks = { ...AdminHandlers.makeHooks(otherPaths), trustedProxies, isAllowedHost: isAllowedAmong(names) }
  const admin = Layer.provide(AdminHandlers.layer, AdminAuthentication.layer)
  const routes = Layer.mergeAll(admin, reports, openApi, ConsoleFiles.layer).pipe(
    Layer.provide(NodeHttpServer.layerHttpServices)
  )
  const httpEffect = PortMiddleware.toHttpEffect(routes, hooks)
  const server = NodeServer.layer(httpEffect, address, trustedProxies, PortMiddleware.reject(hooks), {
    spanName: PortMiddleware.spanNameOf(hooks),
    // Probes and scrapes come every few seconds, and would fill a collector.
    isUntraced: ({ url }) => probes.has(url.split("?", 1).join())
  })
  const listens = Layer.effect(
    ManagementListens,
    Effect.map(Effect.context<Effect.Services<typeof logStart>>(), (context) => ({
      logStart: Effect.orDie(Effect.provide(logStart, context))
    }))
  )
  return Layer.provide(listens, server)
}))
