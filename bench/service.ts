/** The service as a process. `LIMITER` selects its rate limiter: one that does nothing, or one of the service's own. */
import { NodeCrypto, NodeRuntime } from "@effect/platform-node"
import { Config, Effect, Layer } from "effect"
import * as SqlApiKeys from "../src/api-keys/SqlApiKeys.ts"
import * as Database from "../src/database/Database.ts"
import * as ApiServer from "../src/http/ApiServer.ts"
import { GracefulShutdown } from "../src/http/Responses.ts"
import * as Logging from "../src/observability/Logging.ts"
import * as SqlPetRepository from "../src/pets/SqlPetRepository.ts"
import { decide, peek } from "../src/rate-limit/Policy.ts"
import { RateLimiter } from "../src/rate-limit/RateLimiter.ts"
import * as RedisRateLimiter from "../src/rate-limit/RedisRateLimiter.ts"
import * as SqlRateLimiter from "../src/rate-limit/SqlRateLimiter.ts"

const nothing = Layer.succeed(RateLimiter, {
  charge: (_, limits) => Effect.sync(() => decide({}, limits, 0, false).decision),
  peek: (_, limits) => Effect.sync(() => peek({}, limits, 0)),
  unban: () => Effect.succeed("own" as const),
  counting: Effect.succeed("own" as const)
})

const limiter = Layer.unwrap(Effect.gen(function*() {
  const name = yield* Config.Literals(["nothing", "database", "redis"], "LIMITER")
  return name === "nothing" ? nothing : name === "redis" ? RedisRateLimiter.layer : SqlRateLimiter.layer
}))

ApiServer.layer.pipe(
  Layer.provide([SqlPetRepository.layer, SqlApiKeys.layer, limiter, GracefulShutdown.layer]),
  Layer.provide(Database.layer),
  Layer.provide(NodeCrypto.layerSecureRandom),
  Layer.provide(Logging.layer),
  Layer.launch,
  NodeRuntime.runMain
)
