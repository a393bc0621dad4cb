/** The whole service on any stores, called over sockets. */
import { ConfigProvider, Context, Effect, Layer, Logger, Redacted } from "effect"
import type { SecureRandom } from "effect/crypto"
import { HttpServer } from "effect/http"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import type { NewKey } from "../../src/api/KeySchemas.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import { GracefulShutdown } from "../../src/http/RequestLifecycle.ts"
import * as HeldServices from "../../src/node-server/HeldServices.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { api, routes } from "../../src/resources.ts"
import type { memoryStores } from "./Databases.ts"
import { recordErrors } from "./LoggedErrors.ts"
import { unlimitedKeyOptions } from "./Process.ts"
import { type ReceivedResponse, sendBytes } from "./Sockets.ts"

const makeService = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const { address } = yield* HttpServer.HttpServer
  const port = address._tag === "UnixPathAddress" ? 0 : address.port
  const issue = (options: NewKey) => Effect.orDie(Effect.map(apiKeys.issue(options), ({ key }) => Redacted.value(key)))
  const unlimitedKey = yield* Effect.cached(issue(unlimitedKeyOptions))
  return {
    call: (path: string, { key, ...options }: RequestInit & { readonly key?: string } = {}) =>
      Effect.promise(async (): Promise<ReceivedResponse> => {
        const headers = new Headers(options.headers)
        if (key !== undefined) headers.set("authorization", `Bearer ${key}`)
        const response = await fetch(`http://127.0.0.1:${port}${path}`, { ...options, headers })
        return { status: response.status, headers: response.headers, text: await response.text() }
      }),
    /** Sends bytes as `sendBytes` does, with the header of `key`, by default `unlimitedKey`, for `KEY`. */
    send: (bytes: string, { key = unlimitedKey, ...options }: SendOptions = {}) =>
      Effect.flatMap(
        bytes.includes("KEY") ? key : Effect.succeed(""),
        (secret) => sendBytes(port, bytes.replaceAll("KEY", `Authorization: Bearer ${secret}`), options)
      ),
    port,
    newKey: issue({ name: "test", plan: "free" }),
    /** The secret of a key whose limits are never reached. */
    unlimitedKey
  }
})

type SendOptions = Parameters<typeof sendBytes>[2] & { readonly key?: Effect.Effect<string> }

export class Service extends Context.Service<Service, Effect.Success<typeof makeService>>()("test/support/Service") {
  static readonly layer = Layer.effect(Service, makeService)
}

/** The API port, on the stores of all resources. */
export const apiServer = ApiServer.layer(api, routes)

/**
 * Runs the service on `store`, which may have another `RateLimiter`, on a free port. `port` can serve another API.
 * Its log goes to `loggers`.
 */
export const service = <E>(
  store: Layer.Layer<Layer.Success<typeof memoryStores | typeof ApiKeys.layerMemory> | SecureRandom.SecureRandom, E>,
  config: Readonly<Record<string, string>> = {},
  { draining = GracefulShutdown.layer, loggers = [], port = apiServer }: {
    readonly draining?: Layer.Layer<GracefulShutdown>
    readonly loggers?: ReadonlyArray<Logger.Logger<unknown, unknown>>
    readonly port?: typeof apiServer
  } = {}
) =>
  Layer.fresh(Service.layer.pipe(
    Layer.provideMerge(port),
    Layer.provide(draining),
    HeldServices.provide(Layer.provideMerge(store, RateLimiter.layerMemory)),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ HOST: "127.0.0.1", PORT: "0", ...config }))),
    Layer.provide(Logger.layer([...loggers, recordErrors]))
  ))
