import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Config, Context, Effect, Layer, Option } from "effect"
import { HttpServer } from "effect/http"
import { OpenApi } from "effect/http-api"
import { resolve } from "node:path"
import { AdminApi } from "../api/AdminApi.ts"
import { isEmbedded } from "../config/RoomOptions.ts"
import { commandPrefix, Settings } from "../config/Settings.ts"
import * as Database from "../database/Database.ts"
import * as CachedDocument from "../http/CachedDocument.ts"
import * as PortServer from "../http/PortServer.ts"
import { isAllowedAmong } from "../http/RequestHead.ts"
import * as RequestLifecycle from "../http/RequestLifecycle.ts"
import * as AdminAuthentication from "./AdminAuthentication.ts"
import * as AdminHandlers from "./AdminHandlers.ts"
import { AdminToken } from "./AdminToken.ts"
import * as ConsoleFiles from "./ConsoleFiles.ts"
import * as HealthReports from "./HealthReports.ts"

const openApi = CachedDocument.serveJson("/admin/openapi.json", () => OpenApi.fromApi(AdminApi))

const otherPaths = [...HealthReports.paths, "/admin/openapi.json", ...ConsoleFiles.paths]

class ManagementAddress extends Context.Service<ManagementAddress, HttpServer.HttpServer["Service"]["address"]>()(
  "petstore/management/ManagementAddress"
) {}

/** Logs where the management port listens, and how to issue keys. */
export const logStart = Effect.gen(function*() {
  const address = yield* ManagementAddress
  const [url, { source }] = [HttpServer.formatAddress(address), yield* AdminToken]
  const environment = Option.getOrElse(yield* Config.option(Settings.environment.config), () => "none")
  const directory = resolve(yield* Settings.dataDir.config)
  const variables = [
    address._tag !== "UnixPathAddress" && address.port !== 9_090 ? `MANAGEMENT_PORT=${address.port} ` : "",
    source !== Settings.adminToken.name && directory !== resolve("data") ? `DATA_DIR='${directory}' ` : ""
  ].join("")
  yield* Effect.annotateLogs(
    Effect.logInfo(`Management API and web console on ${url}; the admin token is in ${source}`),
    { environment, schemaVersion: Database.newestVersion }
  )
  const token = source === Settings.adminToken.name ? " the same ADMIN_TOKEN and" : ""
  yield* Effect.logInfo(`Issue API keys with${token}: ${variables}${commandPrefix} keys issue --name NAME`)
})

const settings = { host: Settings.managementHost, port: Settings.managementPort }

export const layer = Layer.unwrap(Effect.gen(function*() {
  const names = [yield* Settings.managementHost.config, ...yield* Settings.managementAllowedHosts.config]
  const trustedProxies = yield* Settings.managementTrustedProxies.config
  const hooks: RequestLifecycle.PortHooks = {
    ...AdminHandlers.makeHooks(otherPaths),
    trustedProxies,
    isAllowedHost: isAllowedAmong(names),
    // Do not trace probes and scrapes: they come every few seconds, and would fill a collector of traces.
    isUntraced: ({ url }) => HealthReports.paths.includes(url.split("?", 1).join())
  }
  const admin = AdminHandlers.layer.pipe(
    Layer.provide(AdminAuthentication.layer),
    // Only one process at a time can use the embedded database, so no other one counts requests.
    Layer.provide(Layer.succeed(AdminHandlers.IsSingleProcess, yield* isEmbedded))
  )
  const routes = Layer.mergeAll(admin, HealthReports.layer, openApi, ConsoleFiles.layer).pipe(
    Layer.provide(NodeHttpServer.layerHttpServices)
  )
  const httpEffect = RequestLifecycle.toHttpEffect(routes, hooks)
  const server = PortServer.layer(httpEffect, settings, hooks)
  const listening = Layer.effect(ManagementAddress, Effect.map(HttpServer.HttpServer, ({ address }) => address))
  return Layer.provide(listening, server)
}))
