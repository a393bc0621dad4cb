/** The management server: health, metrics, the admin API and the console. It shares no route with the API port. */
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { AdminApi } from "../api/AdminApi.ts"
import { adminOpenApiDocument } from "../api/AdminOpenApiDocument.ts"
import { ServiceUnavailable } from "../api/Errors.ts"
import { fixedHeaders } from "../api/ResponseHeaders.ts"
import * as Settings from "../config/Settings.ts"
import * as ProcessMetrics from "../observability/ProcessMetrics.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { GracefulShutdown } from "./admission/GracefulShutdown.ts"
import * as AuditHandlers from "./handlers/AuditHandlers.ts"
import * as CachedDocument from "./handlers/CachedDocument.ts"
import * as ConsoleFiles from "./handlers/ConsoleFiles.ts"
import * as KeyHandlers from "./handlers/KeyHandlers.ts"
import * as AdminAuthentication from "./middleware/AdminAuthentication.ts"
import * as RequestValidation from "./middleware/RequestValidation.ts"
import type { Reject } from "./node/ClientErrors.ts"
import * as HostHeader from "./node/HostHeader.ts"
import * as Listener from "./node/Listener.ts"
import * as NodeServer from "./node/NodeServer.ts"
import { outageOf } from "./response/DatabaseErrors.ts"
import * as ErrorResponse from "./response/ErrorResponse.ts"
import { methodsOf, routerConfig } from "./response/RoutePaths.ts"
import * as StartMessages from "./StartMessages.ts"

const admin = HttpApiBuilder.layer(AdminApi).pipe(
  Layer.provide([KeyHandlers.layer, AuditHandlers.layer]),
  Layer.provide([AdminAuthentication.layer, RequestValidation.layer])
)

/** Returns 200 while the process responds at all. */
const health = Layer.unwrap(Effect.map(Settings.buildRevision.config, (revision) =>
  HttpRouter.add(
    "GET",
    "/healthz",
    HttpServerResponse.jsonUnsafe({ status: "healthy", version: ProcessMetrics.serviceVersion, revision })
  )))

/** The OpenAPI document of the admin API. It is no secret, so it needs no token. */
const openApi = CachedDocument.serve(
  "/admin/openapi.json",
  Effect.succeed(CachedDocument.json(adminOpenApiDocument))
)

const ending = new ServiceUnavailable({ message: "The service is shutting down." })

/** Metrics for Prometheus, whose names end in the unit. */
const metrics = PrometheusMetrics.format({
  prefix: "petstore",
  metricNameMapper: (name) => name.endsWith(".duration") ? `${name}_seconds` : name
})

/**
 * The routes of readiness and metrics. The process is ready if the database responds within a second, unless a shutdown
 * began. It also works without Redis; the field `limits` names the counts in use.
 */
const reports = HttpRouter.use(Effect.fnUntraced(function*(router) {
  const sql = yield* SqlClient.SqlClient
  const limiter = yield* RateLimiter
  const draining = yield* GracefulShutdown
  // Concurrent requests share one statement.
  const answers = yield* Effect.cachedWithTTL(Effect.exit(Effect.timeout(sql`SELECT 1`, "1 second")), "100 millis")
  const ready = Effect.orDie(Effect.andThen(Effect.flatten(answers), limiter.counting))
  const readiness = Effect.suspend(() => draining.begun ? Effect.die(ending) : ready)
  const ofProcess = yield* ProcessMetrics.make
  yield* router.add(
    "GET",
    "/readyz",
    Effect.map(readiness, (limits) => HttpServerResponse.jsonUnsafe({ status: "ready", limits }))
  )
  yield* router.add(
    "GET",
    "/metrics",
    Effect.map(
      metrics,
      (text) => HttpServerResponse.text(text + ofProcess(), { contentType: "text/plain; version=0.0.4; charset=utf-8" })
    )
  )
}))

const pages = ["/healthz", "/readyz", "/metrics", "/admin/openapi.json", ...ConsoleFiles.paths]

const answering = ErrorResponse.catchErrors(AdminApi, pages, outageOf)

/** The headers of every response of the port. */
const headers = fixedHeaders

const errors = HttpRouter.middleware(
  Effect.map(GracefulShutdown, (draining) => (httpEffect) =>
    answering(Effect.timeout(httpEffect, "8 seconds")).pipe(
      Effect.map((response) => HttpServerResponse.setHeaders(response, { ...headers, ...response.headers })),
      Effect.map((response) =>
        draining.begun ? HttpServerResponse.setHeader(response, "connection", "close") : response
      )
    )),
  { global: true }
)

const address = { host: Settings.managementHost, port: Settings.managementPort }

const reject: Reject = ({ error }) => Effect.succeed({ error, headers })

const makeServer = Effect.gen(function*() {
  const host = yield* Settings.managementHost.config
  return yield* NodeServer.make({
    handle: (_request, _response, next) => next(),
    isAllowedHost: HostHeader.isAllowedAmong([host, ...yield* Settings.managementAllowedHosts.config]),
    maxStallMs: () => Infinity,
    allow: methodsOf(AdminApi, [])("*"),
    reject
  })
})

/** Serves the admin API on `MANAGEMENT_HOST` and `MANAGEMENT_PORT`. */
export const layer = HttpRouter.serve(
  Layer.mergeAll(admin, health, reports, openApi, ConsoleFiles.layer, errors),
  { disableLogger: true, disableListenLog: true, routerConfig }
).pipe(
  Layer.tap(() => StartMessages.logManagement),
  Layer.provide(Listener.layer(makeServer, address))
)
