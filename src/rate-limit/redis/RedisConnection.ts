/**
 * The connection to Redis. One late reply or one error closes it, so that all commands in flight fail at once. Then new
 * connections are tried until one replies in time.
 */
import * as NodeRedis from "@effect/platform-node/NodeRedis"
import {
  Cause,
  Clock,
  Context,
  Data,
  Deferred,
  Effect,
  Exit,
  Fiber,
  Latch,
  Layer,
  Metric,
  Redacted,
  References,
  Scope
} from "effect"
import { Redis } from "effect/persistence"
import { ErrorReply } from "redis"
import * as RedisUrl from "../../config/RedisUrl.ts"
import { describe } from "../../observability/Logging.ts"
import { checkIntervalMs, maxSilenceMs, ReplyWatch } from "./ReplyWatch.ts"

const pauseBetweenAttemptsMs = 250

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]
})

const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while Redis does not answer and this process counts by itself, else 0."
})

/** Redis did not run the command, or not in time. */
export class RedisDown extends Data.TaggedError("RedisDown")<{ readonly cause: unknown }> {}

/** A connection that is up. */
export interface RedisConnection {
  /** Runs a command. It ends within 50 ms if no replies arrive, and within 120 ms if replies arrive later and later. */
  readonly run: <A>(
    command: (redis: Redis.Redis["Service"]) => Effect.Effect<A, Redis.RedisError>
  ) => Effect.Effect<A, RedisDown>
}

/**
 * Keeps a connection open until the scope closes. `current` is the connection, or `undefined` while it is down.
 * `onConnect` runs before a new connection is used, `onUp` beside its first use. The first connection is awaited for
 * one second at most.
 */
export const make = Effect.fnUntraced(function*(
  url: Redacted.Redacted,
  { onConnect, onUp }: {
    readonly onConnect: (connection: RedisConnection) => Effect.Effect<void, RedisDown>
    readonly onUp: (connection: RedisConnection) => Effect.Effect<void>
  }
) {
  let current: RedisConnection | undefined
  /** Whether the log says that Redis is down. */
  let isReported = false
  const first = yield* Deferred.make<void>()

  const stayUp = Effect.gen(function*() {
    const { connection, lost } = yield* connect(url)
    yield* onConnect(connection)
    current = connection
    isReported = false
    yield* Metric.update(fallback, 0)
    yield* Effect.logInfo("Limits are counted in Redis")
    yield* Deferred.succeed(first, undefined)
    yield* Effect.forkScoped(onUp(connection))
    return yield* lost
  }).pipe(Effect.scoped)

  const pause = Effect.fnUntraced(function*(cause: Cause.Cause<unknown>) {
    current = undefined
    yield* Metric.update(fallback, 1)
    if (!isReported) {
      yield* Effect.logWarning(`Redis cannot be used, this process counts the limits by itself: ${describe(cause)}`)
    }
    isReported = true
    yield* Effect.sleep(pauseBetweenAttemptsMs)
  })

  yield* Effect.forkScoped(Effect.forever(Effect.catchCause(stayUp, pause)))
  yield* Effect.timeoutOption(Deferred.await(first), "1 second")
  return { current: (): RedisConnection | undefined => current }
})

/** Opens a client of the Redis at `url` until the scope closes. */
const openClient = Effect.fnUntraced(function*(url: Redacted.Redacted) {
  // A separate scope, which no other fiber waits for: closing a client that is still connecting may never end.
  const scope = yield* Scope.make()
  const connecting = yield* Effect.acquireRelease(
    NodeRedis.layer({
      url: Redacted.value(url),
      disableOfflineQueue: true,
      // Turned off: `ReplyWatch` finds late replies. The client's own timeout costs a timer and an abort signal per
      // command, and the timer outlives the reply.
      commandOptions: { timeout: 0 },
      pingInterval: 500,
      socket: { connectTimeout: 1000, socketTimeout: 1000, reconnectStrategy: false, ...RedisUrl.readTls(url) }
    }).pipe(
      Layer.buildWithScope(scope),
      // `make` logs a failure once, so the client logs nothing.
      Effect.provideService(References.MinimumLogLevel, "None"),
      Effect.forkDetach
    ),
    (fiber) => Effect.forkDetach(Effect.andThen(Fiber.await(fiber), Scope.close(scope, Exit.void)))
  )
  const services = yield* Fiber.join(connecting)
  return { client: Context.get(services, NodeRedis.NodeRedis).client, redis: Context.get(services, Redis.Redis) }
})

/** Opens one connection and checks that it accepts writes. `lost` fails when the connection is closed. */
const connect = Effect.fnUntraced(function*(url: Redacted.Redacted) {
  const { client, redis } = yield* openClient(url)
  const lost = yield* Deferred.make<never, RedisDown>()
  const cut = (cause: unknown): RedisDown => {
    const down = new RedisDown({ cause })
    Deferred.doneUnsafe(lost, Exit.fail(down))
    if (client.isOpen) client.destroy()
    return down
  }
  yield* Effect.addFinalizer(() => Effect.sync(() => cut(new Error("The service stops"))))
  client.on("error", cut)

  const run = yield* makeRun(redis, cut)
  // A server that only reads, or that rejects the command, is useless.
  yield* run(({ send }) => send("SET", "petstore:limits:probe", "", "PX", "1000"))
  const connection: RedisConnection = { run }
  return { connection, lost: Deferred.await(lost) }
})

/** Returns a function that runs a command. It calls `cut` if a reply is late, or shows that the server cannot serve. */
const makeRun = Effect.fnUntraced(function*(redis: Redis.Redis["Service"], cut: (cause: unknown) => RedisDown) {
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const watch = new ReplyWatch(now())
  /** Open while commands are in flight. The checks pause otherwise, so that an idle process has no timer. */
  const busy = Latch.makeUnsafe(false)

  const check = Effect.andThen(
    busy.await,
    Effect.andThen(
      Effect.sleep(checkIntervalMs),
      Effect.sync(() => {
        if (watch.isLate(now())) cut(new Error(`No answer for ${maxSilenceMs} milliseconds`))
        if (watch.isIdle) busy.closeUnsafe()
      })
    )
  )
  yield* Effect.forkScoped(Effect.forever(check))

  const run: RedisConnection["run"] = (command) =>
    Effect.withFiber(({ context }) => {
      const sentAt = now()
      if (busy.openUnsafe()) watch.resume(sentAt)
      const slot = watch.sent()
      const replied = Effect.onExit(command(redis), (exit) => {
        if (Exit.hasInterrupts(exit)) {
          watch.dropped(slot)
          return Effect.void
        }
        watch.received(slot)
        durations.updateUnsafe((now() - sentAt) / 1000, context)
        return Effect.void
      })
      return Effect.mapError(replied, ({ cause }) => isRejection(cause) ? new RedisDown({ cause }) : cut(cause))
    })
  return run
})

/** Returns whether Redis rejected the command alone. Other errors show that the server cannot serve. */
const isRejection = (cause: unknown): boolean =>
  cause instanceof ErrorReply &&
  !/^(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|OOM|READONLY|TRYAGAIN)/.test(cause.message)
