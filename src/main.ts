#!/usr/bin/env node
/** Starts the Petstore service: the one module that composes the layers of the running service. */
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Config, Console, Deferred, Duration, Effect, Exit, Layer, Option, Ref, Runtime } from "effect"
import { AdminToken } from "./api-keys/AdminToken.ts"
import * as FirstKey from "./api-keys/FirstKey.ts"
import * as SqlApiKeys from "./api-keys/SqlApiKeys.ts"
import { checkSettings, Settings } from "./config/Settings.ts"
import * as Database from "./database/Database.ts"
import { type DataDirectoryLost, OnDataDirectoryLost } from "./database/DataDirectory.ts"
import * as ApiServer from "./http/ApiServer.ts"
import { GracefulShutdown } from "./http/Responses.ts"
import * as ManagementServer from "./management/ManagementServer.ts"
import * as Logging from "./observability/Logging.ts"
import { describe } from "./observability/LogLines.ts"
import * as Telemetry from "./observability/Telemetry.ts"
import * as SqlPetRepository from "./pets/SqlPetRepository.ts"
import * as SqlRateLimiter from "./rate-limit/SqlRateLimiter.ts"

/** The maximum time of a shutdown in milliseconds. */
const maxShutdownMs = 9_500

/** Loads the Redis client only when it is needed. */
const redisRateLimiter = Layer.unwrap(
  Effect.map(Effect.promise(() => import("./rate-limit/RedisRateLimiter.ts")), ({ layer }) => layer)
)

const rateLimiter = Layer.unwrap(Effect.map(
  Config.option(Settings.redisUrl.config),
  Option.match({ onNone: () => SqlRateLimiter.layer, onSome: () => redisRateLimiter })
))

const services = Layer.mergeAll(SqlPetRepository.layer, SqlApiKeys.layer, rateLimiter).pipe(
  Layer.provideMerge(Database.layer),
  // The admin token is built before the database, so that an unusable `DATA_DIR` stops the start before a migration.
  Layer.provideMerge(AdminToken.layer),
  Layer.provideMerge(NodeCrypto.layerSecureRandom)
)

const servers = Layer.merge(ApiServer.layer, ManagementServer.layer)

/**
 * Begins the shutdown: for `DRAIN_SECONDS` the process is not ready and closes each connection after its response, so
 * that balancers send requests elsewhere. Then it takes no new connections. The process exits in any case, even if the
 * database does not respond.
 */
const drain = Layer.effectDiscard(Effect.gen(function*() {
  const shutdown = yield* GracefulShutdown
  const seconds = yield* Settings.drainSeconds.config
  yield* Effect.addFinalizer(() => {
    setTimeout(() => process.exit(1), maxShutdownMs).unref()
    return Effect.andThen(Ref.set(shutdown, true), Effect.sleep(Duration.seconds(seconds)))
  })
}))

// The first key is shown only once, so it is issued last, when both servers listen and no step can fail.
const service = Layer.merge(drain, FirstKey.layer).pipe(
  Layer.provide(servers),
  Layer.provide(GracefulShutdown.layer),
  Layer.provide(services)
)

/** Reports all invalid settings before any file or table is created. */
const validSettings = Layer.effectDiscard(Effect.tapError(checkSettings, ({ message }) => Console.error(message)))

const logFatal = Effect.tapCause((cause: Cause.Cause<unknown>) => Effect.logFatal(describe(cause)))

/** Runs the service until it fails, is interrupted, or loses its data directory. */
const program = Effect.gen(function*() {
  const lost = yield* Deferred.make<never, DataDirectoryLost>()
  const failWithLoss = (error: DataDirectoryLost) => void Deferred.doneUnsafe(lost, Exit.fail(error))
  const launched = Layer.launch(Layer.provide(service, Layer.succeed(OnDataDirectoryLost, failWithLoss)))
  // The loss is logged before the graceful shutdown of the service, which takes some seconds.
  return yield* Effect.raceFirst(logFatal(launched), logFatal(Deferred.await(lost)))
})

program.pipe(
  Effect.onInterrupt(() => Effect.logInfo("Stopped")),
  Effect.provide(
    Telemetry.layer.pipe(
      Layer.provideMerge(Logging.layer),
      Layer.tapCause((cause) => Console.error(describe(cause))),
      Layer.provide(validSettings)
    )
  ),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    // The exit code is 0 after a signal, which interrupts the service. After a failure it is the error's, usually 1.
    teardown: (exit, onExit) =>
      onExit(
        Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)
          ? Runtime.getErrorExitCode(Cause.squash(exit.cause))
          : 0
      )
  })
)
