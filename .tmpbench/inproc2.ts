import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import {
  Clock,
  ConfigProvider,
  Context,
  Effect,
  Layer,
  Logger,
  Option,
  Redacted,
  References,
  Scope,
  Tracer
} from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpIncomingMessage, HttpRouter, HttpServer } from "effect/http"
import { IncomingMessage, ServerResponse } from "node:http"
import { ApiKeys } from "../src/api-keys/ApiKeys.ts"
import * as ApiRoutes from "../src/http/ApiRoutes.ts"
import { GracefulShutdown } from "../src/http/Responses.ts"
import { routerConfig } from "../src/http/RoutePaths.ts"
import { JsonLines } from "../src/observability/LogLines.ts"
import { PetRepository } from "../src/pets/PetRepository.ts"
import { RateLimiter } from "../src/rate-limit/RateLimiter.ts"

const pets = Object.freeze(
  Array.from(
    { length: 21 },
    (_, i) => ({ id: BigInt(i + 1), name: "pet " + i, categoryId: 1n, status: "available" as const })
  )
)
const repo = Layer.succeed(
  PetRepository,
  PetRepository.of({
    list: () => Effect.suspend(() => Effect.succeed(pets)),
    find: (id: bigint) => Effect.suspend(() => Effect.succeed(Option.some(pets[0]!))),
    create: ((pet: any) => Effect.succeed({ id: 1n, ...pet })) as any
  } as any)
)
const loggers = Logger.layer([Logger.map(Logger.formatJson, () => {})])
const logger = Logger.map(Logger.formatJson, () => {})
const program = Effect.gen(function*() {
  const keys = yield* ApiKeys
  const { key } = yield* keys.issue({ name: "x", plan: "enterprise", limits: { perMinute: 1e9, perDay: 1e9 } } as any)
  const secret = Redacted.value(key)
  const httpEffect = yield* HttpRouter.toHttpEffect(ApiRoutes.layer(yield* ApiRoutes.makePort))
  const pick = Context.pick(
    Scope.Scope,
    Clock.Clock,
    Tracer.Tracer,
    Logger.CurrentLoggers,
    References.MinimumLogLevel,
    JsonLines,
    HttpIncomingMessage.MaxBodySize
  )
  const scope = yield* Scope.Scope
  const handler = yield* Effect.updateContext(
    NodeHttpServer.makeHandler(httpEffect as any, { scope }),
    pick as any
  ) as any
  const run = (url: string, n: number) => {
    let bytes = 0
    const t = process.hrtime.bigint()
    for (let i = 0; i < n; i++) {
      const req: any = {
        __proto__: IncomingMessage.prototype,
        method: "GET",
        url,
        httpVersion: "1.1",
        httpVersionMajor: 1,
        headers: { host: "localhost", authorization: "Bearer " + secret + "", "content-type": "application/json" },
        rawHeaders: ["Host", "localhost", "Authorization", "x"],
        socket: { remoteAddress: "127.0.0.1" },
        complete: true
      }
      const res: any = {
        __proto__: ServerResponse.prototype,
        req,
        socket: { writableEnded: false },
        destroyed: false,
        prependListener() {},
        on() {},
        once() {},
        writeHead(_s: number, a: any, h: any) {
          bytes++
        },
        end(b: any) {
          bytes += b?.length ?? 0
        }
      }
      Object.defineProperty(res, "writableEnded", { value: false })
      Object.defineProperty(res, "destroyed", { value: false })
      handler(req, res)
    }
    return { us: Number(process.hrtime.bigint() - t) / 1000 / n, bytes }
  }
  const base = (n: number) => {
    const t = process.hrtime.bigint()
    let x = 0
    for (let i = 0; i < n; i++) {
      const req: any = {
        __proto__: IncomingMessage.prototype,
        method: "GET",
        url: "/v1/pets",
        httpVersion: "1.1",
        httpVersionMajor: 1,
        headers: { host: "localhost", authorization: "Bearer " + secret, "content-type": "application/json" },
        rawHeaders: ["Host", "localhost", "Authorization", "x"],
        socket: { remoteAddress: "127.0.0.1" },
        complete: true
      }
      const res: any = {
        __proto__: ServerResponse.prototype,
        req,
        prependListener() {},
        on() {},
        once() {},
        writeHead() {},
        end() {}
      }
      Object.defineProperty(res, "writableEnded", { value: false })
      Object.defineProperty(res, "destroyed", { value: false })
      x += req.url.length + (res.x ?? 0)
    }
    return Number(process.hrtime.bigint() - t) / 1000 / n
  }
  run("/v1/pets", 30000)
  run("/v1/pets/1", 30000)
  base(30000)
  const best = (f: () => number) => Math.min(...Array.from({ length: 30 }, f))
  const b = best(() => base(20000))
  console.log("list", (best(() => run("/v1/pets?cursor=MTAw", 20000).us) - b).toFixed(2))
})
Effect.scoped(program).pipe(
  Effect.provide(
    Layer.mergeAll(
      repo,
      ApiKeys.layerMemory,
      RateLimiter.layerMemory,
      GracefulShutdown.layer,
      Layer.succeed(HttpRouter.RouterConfig, routerConfig)
    ).pipe(
      Layer.provideMerge(SecureRandom.layerWebCrypto),
      Layer.provideMerge(ConfigProvider.layer(ConfigProvider.fromUnknown({}))),
      Layer.provideMerge(
        Layer.mergeAll(Logger.layer([logger]), Layer.succeed(JsonLines, { logger, write: (l: string) => {} } as any))
      )
    )
  ) as any,
  Effect.runPromise as any
)
