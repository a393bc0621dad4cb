#!/usr/bin/env node
/** The Petstore service: the one place where its layers are put together. */
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Config, Console, Deferred, Effect, Exit, Layer, Option } from "effect"
import { AdminToken } from "./api-keys/AdminToken.ts"
import { ApiKeys } from "./api-keys/ApiKeys.ts"
import * as BootstrapKey from "./api-keys/BootstrapKey.ts"
import { type DataDirectoryLost, OnDataDirectoryLost } from "./config/DataDirectory.ts"
import * as Settings from "./config/Settings.ts"
import * as Database from "./database/Database.ts"
import * as ApiServer from "./http/ApiServer.ts"
import * as ManagementServer from "./http/ManagementServer.ts"
import * as ClientAddress from "./http/middleware/ClientAddress.ts"
import * as Cors from "./http/middleware/Cors.ts"
import * as GracefulShutdown from "./http/node/GracefulShutdown.ts"
import * as HostHeader from "./http/node/HostHeader.ts"
import * as Logging from "./observability/Logging.ts"
import * as Telemetry from "./observability/Telemetry.ts"
import { PetRepository } from "./pets/PetRepository.ts"
import { RateLimiter } from "./rate-limit/RateLimiter.ts"

const redisUrl = Config.option(Settings.redisUrl)

const rateLimiter = Layer.unwrap(Effect.map(
  redisUrl,
  Option.match({ onNone: () => RateLimiter.layer, onSome: () => RateLimiter.layerRedis })
))

const services = Layer.mergeAll(PetRepository.layer, ApiKeys.layer, rateLimiter).pipe(
  Layer.provideMerge(Database.layer),
  // Before the database: a `DATA_DIR` that cannot be used is to migrate nothing.
  Layer.provideMerge(AdminToken.layer),
  Layer.provideMerge(NodeCrypto.layerSecureRandom)
)

/** Read again where they are used. What is wrong is to be said before anything is made, or migrated. */
const settings = Layer.effectDiscard(Effect.all([
  Config.option(Settings.databaseUrl),
  redisUrl,
  ApiServer.address,
  ManagementServer.address,
  HostHeader.allowedHosts,
  GracefulShutdown.drainSeconds,
  Cors.origins,
  ClientAddress.trustedProxies
], { discard: true }))

// A key is shown once: only where nothing can fail any more.
const servers = BootstrapKey.layer.pipe(Layer.provide(Layer.merge(ApiServer.layer, ManagementServer.layer)))

const service = GracefulShutdown.drain.pipe(
  Layer.provide(servers),
  Layer.provide(GracefulShutdown.GracefulShutdown.layer),
  Layer.provide(services),
  Layer.provide(settings)
)

const logFatal = Effect.tapCause((cause: Cause.Cause<unknown>) => Effect.logFatal(Logging.describe(cause)))

/** Runs the service until it fails, is interrupted, or loses its data directory. */
const run = Effect.gen(function*() {
  const lost = yield* Deferred.make<never, DataDirectoryLost>()
  const onLost = (error: DataDirectoryLost) => void Deferred.doneUnsafe(lost, Exit.fail(error))
  const launched = Layer.launch(Layer.provide(service, Layer.succeed(OnDataDirectoryLost, onLost)))
  // The loss is logged before the graceful shutdown of the service, which takes some seconds.
  return yield* Effect.raceFirst(logFatal(launched), logFatal(Deferred.await(lost)))
})

run.pipe(
  Effect.onInterrupt(() => Effect.logInfo("Stopped")),
  Effect.provide(
    Telemetry.layer.pipe(
      Layer.provideMerge(Logging.layer),
      Layer.tapCause((cause) => Console.error(Logging.describe(cause)))
    )
  ),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    // 0 when it was stopped by a signal.
    teardown: (exit, onExit) => onExit(Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause) ? 1 : 0)
  })
)
