/** The management port for suites. */
import { assert } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Logger, Redacted, References } from "effect"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { GracefulShutdown } from "../../src/http/RequestLifecycle.ts"
import { AdminToken } from "../../src/management/AdminToken.ts"
import * as ManagementServer from "../../src/management/ManagementServer.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertErrorBody } from "../support/Assertions.ts"
import type { stores } from "../support/Databases.ts"
import { recordErrors } from "../support/LoggedErrors.ts"
import { adminToken, send } from "../support/Process.ts"
import { apiServer, Service } from "../support/Service.ts"
import { type ReceivedResponse, sendBytes } from "../support/Sockets.ts"
import { freePort } from "../support/Temporary.ts"

/** The running management port. */
export class Management extends Context.Service<Management, {
  readonly baseUrl: string
  /** Sends a request with the admin token to a path below `/admin`. */
  admin(method: string, path: string, body?: unknown, headers?: object): ReturnType<typeof send>
  /** Sends bytes, and returns the response once the service closes the connection. */
  send(bytes: string): Effect.Effect<ReceivedResponse>
  /** The log lines at level Info and above: level, message and annotations. */
  readonly lines: ReadonlyArray<Readonly<Record<string, unknown>>>
}>()("test/management/Management") {}

/** The API port and the management port on `store`, and a client with the admin token. */
export const serversOn = (
  store: (typeof stores)[number]["layer"],
  config: Readonly<Record<string, string>> = {},
  draining = GracefulShutdown.layer
) =>
  Layer.unwrap(Effect.map(freePort, (port) => {
    const baseUrl = `http://127.0.0.1:${port}`
    const lines: Array<Readonly<Record<string, unknown>>> = []
    const management = Layer.succeed(Management, {
      baseUrl,
      lines,
      send: (bytes) => sendBytes(port, bytes),
      admin: (method, path, body, headers) => send(`${baseUrl}/admin${path}`, adminToken, method, body, headers)
    })
    const env = { HOST: "127.0.0.1", PORT: "0", MANAGEMENT_PORT: String(port), ...config }
    const logger = Logger.make(({ fiber, logLevel, message }) => {
      lines.push({ level: logLevel, message: String(message), ...fiber.getRef(References.CurrentLogAnnotations) })
    })
    const token = Redacted.make(adminToken)
    const api = Layer.provide(Service.layer, apiServer)
    const limited = Layer.provideMerge(RateLimiter.layerMemory, store)
    const started = Layer.provide(Layer.effectDiscard(ManagementServer.logStart), ManagementServer.layer)
    return Layer.mergeAll(api, started, management, AdminClient.layer({ baseUrl, token })).pipe(
      Layer.provide([draining, limited, Layer.succeed(AdminToken, { source: "ADMIN_TOKEN", token })]),
      Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(env))),
      Layer.provide(Logger.layer([logger, recordErrors]))
    )
  }))

/** Checks the Error body, of which the message includes `message`, and the headers of the management port. */
export const assertError = (response: ReceivedResponse, status: number, code: string, message = ""): void => {
  assertErrorBody(response, status, code, message)
  assert.strictEqual(response.headers.get("cache-control"), "no-store")
  assert.match(response.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/)
  assert.isNotNull(response.headers.get("date"))
  for (const name of response.headers.keys()) assert.notMatch(name, /ratelimit/)
}
