import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Config, Console, Deferred, Duration, Effect, Exit, Layer, Option, Ref, Runtime } from "effect"
import type { HttpServer } from "effect/http"
import * as FirstKey from "./api-keys/FirstKey.ts"
import * as SqlApiKeys from "./api-keys/SqlApiKeys.ts"
import { databaseErrors } from "./api/DatabaseErrors.ts"
import { redisOptions } from "./config/RedisSettings.ts"
import { apiKeyOptions, databaseOptions, isEmbedded, savedStatesOptions } from "./config/RoomOptions.ts"
import { checkSettings, Settings } from "./config/Settings.ts"
import { closeWithin, maxServiceClose, maxTelemetryClose } from "./config/Shutdown.ts"
import { BackgroundFailures } from "./database/BackgroundFailures.ts"
import * as Database from "./database/Database.ts"
import type { DataDirectoryFailed, DataDirectoryLost, OnDirectoryLost } from "./database/DataDirectory.ts"
import { Readiness } from "./database/Readiness.ts"
import * as ApiServer from "./http/ApiServer.ts"
import { GracefulShutdown } from "./http/RequestLifecycle.ts"
import { AdminToken } from "./management/AdminToken.ts"
import * as ManagementServer from "./management/ManagementServer.ts"
import * as HeldServices from "./node-server/HeldServices.ts"
import type { CannotListen } from "./node-server/NodeServer.ts"
import { describeCause } from "./observability/DescribeCause.ts"
import * as Logging from "./observability/Logging.ts"
import { makeCountFailure } from "./observability/MetricConstructors.ts"
import * as ProcessMetrics from "./observability/ProcessMetrics.ts"
import * as Telemetry from "./observability/Telemetry.ts"
import * as SavedStates from "./rate-limit/SavedStates.ts"
import { StateLookups } from "./rate-limit/StateLookups.ts"

const rateLimiter = Layer.unwrap(Effect.gen(function*() {
  const redisUrl = yield* Config.option(Settings.redisUrl.config)
  if (Option.isNone(redisUrl)) return SavedStates.layer(savedStatesOptions)
  const { layer } = yield* Effect.promise(() => import("./rate-limit/RedisRateLimiter.ts"))
  return layer(yield* redisOptions)
}))

const apiKeys = Layer.unwrap(Effect.map(apiKeyOptions, SqlApiKeys.layer))

const exitWithFailure = (): void => void (process.exitCode = 1)

const backgroundFailures = Layer.succeed(BackgroundFailures, {
  makeCounter: makeCountFailure,
  onLostValues: exitWithFailure
})

const makeServices = (onDirectoryLost: OnDirectoryLost) =>
  Layer.mergeAll(apiKeys, rateLimiter, Readiness.layer(databaseErrors)).pipe(
    Layer.provide(StateLookups.layer),
    Layer.provideMerge(
      Layer.unwrap(Effect.map(databaseOptions, (options) => Database.layer(options, onDirectoryLost)))
    ),
    Layer.provideMerge(backgroundFailures),
    // Load the admin token first: an unusable token file in `DATA_DIR` must prevent migrations.
    Layer.provideMerge(AdminToken.layer),
    Layer.provideMerge(NodeCrypto.layerSecureRandom),
    Layer.provide(NodeFileSystem.layer)
  )

/**
 * Begins the graceful shutdown when the layer closes. For `DRAIN_SECONDS`, `/readyz` fails and each connection closes
 * after its next response, so that load balancers stop using the process. Then the listeners close.
 */
const drain = Layer.effectDiscard(Effect.gen(function*() {
  const shutdown = yield* GracefulShutdown
  const seconds = yield* Settings.drainSeconds.config
  yield* Effect.addFinalizer(() => Effect.andThen(Ref.set(shutdown, true), Effect.sleep(Duration.seconds(seconds))))
}))

const reportHang = Effect.andThen(
  Effect.logError("The service did not stop in time. Counts that are not yet written to the database are lost."),
  Effect.sync(exitWithFailure)
)

const logStart = Layer.effectDiscard(Effect.gen(function*() {
  yield* ApiServer.logStart
  yield* ManagementServer.logStart
}))

const firstKey = Layer.unwrap(Effect.gen(function*() {
  return (yield* isEmbedded) ? FirstKey.layer(yield* ApiServer.exampleUrl) : Layer.empty
}))

type ApiServerLayer = Layer.Layer<
  HttpServer.HttpServer,
  CannotListen | Config.ConfigError,
  GracefulShutdown | Layer.Success<ReturnType<typeof makeServices>>
>

const makeService = (apiServer: ApiServerLayer, onDirectoryLost: OnDirectoryLost) =>
  // Issue the first API key last: it is shown only once, so if the start failed afterwards, the key would be lost.
  Layer.merge(drain, firstKey).pipe(
    Layer.provide(logStart),
    Layer.provide([apiServer, ManagementServer.layer]),
    HeldServices.provide(GracefulShutdown.layer),
    HeldServices.provide(makeServices(onDirectoryLost)),
    closeWithin(maxServiceClose, reportHang)
  )

const logFatal = Effect.tapCause((cause: Cause.Cause<unknown>) => Effect.logFatal(describeCause(cause)))

const launch = Effect.fnUntraced(function*(apiServer: ApiServerLayer) {
  const lost = yield* Deferred.make<never, DataDirectoryFailed | DataDirectoryLost>()
  const failWithLoss: OnDirectoryLost = (error) => void Deferred.doneUnsafe(lost, Exit.fail(error))
  const launched = Layer.launch(makeService(apiServer, failWithLoss))
  // Log inside the race, so that the loss of the data directory is logged at once: `raceFirst` ends only when the
  // shutdown of `launched` has ended.
  return yield* Effect.raceFirst(logFatal(launched), logFatal(Deferred.await(lost)))
})

/** Runs the service, with `apiServer` as its API port, until a signal or a failure ends it. */
export const runService = (apiServer: ApiServerLayer): void =>
  launch(apiServer).pipe(
    Effect.onInterrupt(() => Effect.logInfo("Stopped")),
    Effect.provide(Telemetry.layer.pipe(
      closeWithin(maxTelemetryClose),
      Layer.provideMerge(Layer.merge(Logging.layer, ProcessMetrics.layer(Database.newestVersion))),
      Layer.tapCause((cause) => Console.error(describeCause(cause))),
      Layer.provide(
        Layer.effectDiscard(Effect.tapError(checkSettings(process.env), ({ message }) => Console.error(message)))
      )
    )),
    NodeRuntime.runMain({
      disableErrorReporting: true,
      // Exit with 0 after a signal such as SIGTERM, or with 1 if the service did not stop in time (`reportHang`), or
      // could not write all values (`onLostValues`). After a failure, exit with the code of the error, by default 1.
      teardown: (exit, onExit) =>
        onExit(
          Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)
            ? Runtime.getErrorExitCode(Cause.squash(exit.cause))
            : Number(process.exitCode ?? 0)
        )
    })
  )
