/** Serves a contract twice, with the fast path and with HttpApi alone, and compares the bytes of their responses. */
import { assert } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Logger, Redacted } from "effect"
import { HttpServer } from "effect/http"
import type { HttpApi, HttpApiGroup } from "effect/http-api"
import { TestClock } from "effect/testing"
import { connect, type Socket } from "node:net"
import { ApiKeys } from "../../../src/api-keys/ApiKeys.ts"
import type { Limits, Plan } from "../../../src/api/Plans.ts"
import { GracefulShutdown } from "../../../src/http/admission/GracefulShutdown.ts"
import * as ApiRoutes from "../../../src/http/ApiRoutes.ts"
import * as ApiServer from "../../../src/http/ApiServer.ts"
import * as FastPath from "../../../src/http/fast-path/FastPath.ts"
import * as JsonBody from "../../../src/http/middleware/JsonBody.ts"
import { PetRepository } from "../../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../../src/rate-limit/RateLimiter.ts"
import { memory } from "../../support/Harness.ts"

/** A server that needs the services and the middleware that `start` provides. */
type ServerLayer<E> = Layer.Layer<
  HttpServer.HttpServer,
  E,
  | Layer.Success<typeof ApiRoutes.middleware>
  | ApiKeys
  | PetRepository
  | RateLimiter
  | GracefulShutdown
  | Layer.Services<typeof ApiServer.layer>
>

/** A client with one connection at a time. It opens a new one after the server closed the last. */
class Connection {
  readonly #port: number
  #socket: Socket | undefined
  #received = ""
  #settle: ((response: string) => void) | undefined
  #isHead = false

  constructor(port: number) {
    this.#port = port
  }

  /** Sends the bytes of one request. Returns those of its response, without the date and any random request id. */
  send(bytes: string): Promise<string> {
    return new Promise((resolve) => {
      this.#received = ""
      this.#isHead = bytes.startsWith("HEAD ")
      this.#settle = resolve
      this.#socket ??= this.#connect()
      this.#socket.write(bytes)
    })
  }

  close(): void {
    this.#socket?.destroy()
  }

  #connect(): Socket {
    const socket = connect(this.#port, "127.0.0.1")
    socket.setNoDelay(true)
    socket.setEncoding("latin1")
    socket.on("data", (chunk: string) => {
      this.#received += chunk
      if (this.#isComplete()) this.#respond()
    })
    socket.on("error", () => {})
    socket.on("close", () => {
      this.#socket = undefined
      this.#respond()
    })
    return socket
  }

  #isComplete(): boolean {
    const continued = "HTTP/1.1 100 Continue\r\n\r\n"
    const response = this.#received.startsWith(continued)
      ? this.#received.slice(continued.length)
      : this.#received
    const end = response.indexOf("\r\n\r\n")
    if (end === -1 || /\r\nconnection: close\r\n/i.test(response.slice(0, end + 2))) return false
    const length = /\r\ncontent-length: (\d+)\r\n/i.exec(response.slice(0, end + 2))?.[1] ?? 0
    return this.#isHead || response.length - end - 4 >= Number(length)
  }

  #respond(): void {
    const settle = this.#settle
    this.#settle = undefined
    settle?.(this.#received.replace(/\r\nDate: [^\r]*/i, "").replace(/(x-request-id: )[\da-f-]{36}/, "$1random"))
  }
}

interface KeyOptions {
  readonly plan: Plan
  readonly limits?: Limits
}

class Running extends Context.Service<Running, {
  readonly connection: Connection
  readonly keys: ReadonlyArray<string>
}>()("test/http/fast-path/Running") {}

/** Starts `server` with its own stores, and issues a key for each of `plans`. */
const start = <E>(server: ServerLayer<E>, plans: ReadonlyArray<KeyOptions>) => {
  const running = Layer.effect(
    Running,
    Effect.gen(function*() {
      const { issue } = yield* ApiKeys
      const issued = yield* Effect.forEach(plans, (options) => issue({ name: "test", ...options }))
      const { address } = yield* HttpServer.HttpServer
      const connection = yield* Effect.acquireRelease(
        Effect.sync(() => new Connection(address._tag === "UnixPathAddress" ? 0 : address.port)),
        (opened) => Effect.sync(() => opened.close())
      )
      return { connection, keys: issued.map(({ key }) => Redacted.value(key)) }
    })
  ).pipe(
    Layer.provide(server),
    Layer.provide(ApiRoutes.middleware),
    Layer.provide(GracefulShutdown.layer),
    Layer.provide(Layer.merge(memory, RateLimiter.layerMemory)),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ HOST: "127.0.0.1", PORT: "0" }))),
    Layer.provide(Logger.layer([])),
    Layer.fresh
  )
  return Effect.map(Layer.build(running), (context) => Context.get(context, Running))
}

/** Returns the bytes of a request. `keys` has the secret of one key per plan, in the order of the plans. */
export type Request = (keys: ReadonlyArray<string>) => string

/** The requests between two steps of the clock by one minute. Limits are used up and then reset. */
const perMinute = 500

/**
 * Sends the same requests to two servers, one after another, and fails at the first whose responses differ in a byte.
 * Returns the number of responses by status.
 */
export const compare = Effect.fnUntraced(function*<E>(
  servers: readonly [ServerLayer<E>, ServerLayer<E>],
  plans: ReadonlyArray<KeyOptions>,
  requests: ReadonlyArray<Request>
) {
  const [one, other] = yield* Effect.all([start(servers[0], plans), start(servers[1], plans)])
  const statuses: Record<string, number> = {}
  for (let begin = 0; begin < requests.length; begin += perMinute) {
    yield* Effect.promise(async () => {
      for (const request of requests.slice(begin, begin + perMinute)) {
        const bytes = request(one.keys)
        const [response, expected] = await Promise.all([
          one.connection.send(bytes),
          other.connection.send(request(other.keys))
        ])
        if (response !== expected) assert.strictEqual(response, expected, bytes)
        const status = response.replace("HTTP/1.1 100 Continue\r\n\r\n", "").slice(9, 12)
        statuses[status] = (statuses[status] ?? 0) + 1
      }
    })
    yield* TestClock.adjust("1 minute")
  }
  return statuses
}, Effect.scoped)

/** Returns servers of `api` with and without the fast path, and the number of requests that the fast path served. */
export const twice = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) => {
  const taken = { count: 0 }
  const counting = Effect.map(
    FastPath.compile(api, { maxBodyBytes: JsonBody.maxBodyBytes }),
    (fastPath): FastPath.FastPath => (request) => {
      const call = fastPath(request)
      if (call !== undefined) taken.count++
      return call
    }
  )
  return {
    taken,
    fast: ApiServer.serve(api, counting),
    reference: ApiServer.serve(api, Effect.succeed<FastPath.FastPath>(() => undefined))
  }
}
