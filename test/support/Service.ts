/** The whole service on any stores, called over sockets. */
import { ConfigProvider, Context, Effect, Layer, Logger, Redacted } from "effect"
import type { SecureRandom } from "effect/crypto"
import { HttpServer } from "effect/http"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import type { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import { GracefulShutdown } from "../../src/http/Responses.ts"
import type { PetRepository } from "../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { unlimitedKeyOptions } from "./Process.ts"
import { type ReceivedResponse, sendBytes } from "./Sockets.ts"

const newUnlimitedKey = Effect.flatMap(
  ApiKeys,
  (keys) => Effect.map(keys.issue(unlimitedKeyOptions), ({ key }) => Redacted.value(key))
)

const makeService = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const { address } = yield* HttpServer.HttpServer
  const port = address._tag === "UnixPathAddress" ? 0 : address.port
  const newKey = Effect.orDie(
    Effect.map(apiKeys.issue({ name: "test", plan: "free" }), ({ key }) => Redacted.value(key))
  )
  return {
    /** Calls `path` of the service, with `key` as the bearer token. */
    call: (path: string, { key, ...options }: RequestInit & { readonly key?: string } = {}) =>
      Effect.promise(async (): Promise<ReceivedResponse> => {
        const headers = new Headers(options.headers)
        if (key !== undefined) headers.set("authorization", `Bearer ${key}`)
        const response = await fetch(`http://127.0.0.1:${port}${path}`, { ...options, headers })
        return { status: response.status, headers: response.headers, text: await response.text() }
      }),
    /** Sends bytes and returns the response once the service closes the connection. */
    send: (bytes: string) => sendBytes(port, bytes),
    /** As `send`, from a client that never closes its side and keeps sending. */
    sendHalfOpen: (bytes: string) => sendBytes(port, bytes, { drip: " ", allowHalfOpen: true }),
    /** As `send`, from a client that half-closes after the bytes. */
    sendAndHalfClose: (bytes: string) => sendBytes(port, bytes, { halfCloses: true }),
    /** As `send`, and sends `drip` every half second after the bytes. `KEY` in `bytes` becomes an API key's header. */
    sendWithDrip: (bytes: string, drip: string) =>
      Effect.flatMap(
        newKey,
        (key) => sendBytes(port, bytes.replace("KEY", `Authorization: Bearer ${key}\r\n`), { drip })
      ),
    /** The port of the service. */
    port,
    /** Issues a key on the Free plan, and returns its secret. */
    newKey,
    /** Issues a key whose limits are never reached, and returns its secret. */
    newUnlimitedKey: Effect.orDie(Effect.provideService(newUnlimitedKey, ApiKeys, apiKeys))
  }
})

/** The running service, called over sockets. */
export class Service extends Context.Service<Service, Effect.Success<typeof makeService>>()("test/support/Service") {
  static readonly layer = Layer.effect(Service, makeService)
}

/** Runs the service on `store`, on a free port, without its log. */
export const service = <E>(
  store: Layer.Layer<PetRepository | ApiKeys | KeyVerifier | SecureRandom.SecureRandom, E>,
  config: Readonly<Record<string, string>> = {},
  draining: Layer.Layer<GracefulShutdown> = GracefulShutdown.layer
) =>
  Service.layer.pipe(
    Layer.provideMerge(ApiServer.layer),
    Layer.provide(draining),
    Layer.provide(Layer.merge(store, RateLimiter.layerMemory)),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ HOST: "127.0.0.1", PORT: "0", ...config }))),
    Layer.provide(Logger.layer([]))
  )
