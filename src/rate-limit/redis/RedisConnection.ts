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
  Layer,
  Metric,
  Redacted,
  References,
  Schedule,
  Scope
} from "effect"
import { Redis } from "effect/persistence"
import { ErrorReply } from "redis"
import { FreeList } from "../../collections/FreeList.ts"
import { describe } from "../../observability/Logging.ts"

/**
 * The maximum time without a reply while one is due, in milliseconds. Including its detection, no command waits for 50
 * ms.
 */
const timeout = 35
/**
 * The maximum time of a reply while other replies arrive, in milliseconds. Beyond it, Redis or this process is
 * overloaded.
 */
const maxReplyTimeMs = 100
/** The interval of the check for late replies, in milliseconds. */
const checkIntervalMs = 5
const betweenAttempts = 250

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]
})

const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while Redis does not answer and this process counts by itself, else 0."
})

/** Redis did not run the command, or not in time. */
export class RedisDown extends Data.TaggedError("LinkDown")<{ readonly cause: unknown }> {}

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
    readonly onConnect: (link: RedisConnection) => Effect.Effect<void, RedisDown>
    readonly onUp: (link: RedisConnection) => Effect.Effect<void>
  }
) {
  let current: RedisConnection | undefined
  let reported = false
  const first = yield* Deferred.make<void>()

  const up = Effect.gen(function*() {
    const { link, lost } = yield* connect(url)
    yield* onConnect(link)
    current = link
    reported = false
    yield* Metric.update(fallback, 0)
    yield* Effect.logInfo("Limits are counted in Redis")
    yield* Deferred.succeed(first, undefined)
    yield* Effect.forkScoped(onUp(link))
    return yield* lost
  }).pipe(Effect.scoped)

  const down = Effect.fnUntraced(function*(cause: Cause.Cause<unknown>) {
    current = undefined
    yield* Metric.update(fallback, 1)
    if (!reported) {
      yield* Effect.logWarning(`Redis cannot be used, this process counts the limits by itself: ${describe(cause)}`)
    }
    reported = true
    yield* Effect.sleep(betweenAttempts)
  })

  yield* Effect.forkScoped(Effect.forever(Effect.catchCause(up, down)))
  yield* Effect.timeoutOption(Deferred.await(first), "1 second")
  return { current: (): RedisConnection | undefined => current }
})

/** Opens one connection and checks that it accepts writes. `lost` fails when the connection is closed. */
const connect = Effect.fnUntraced(function*(url: Redacted.Redacted) {
  const clock = yield* Clock.Clock
  // A separate scope, which no other fiber waits for: closing a client that is still connecting may never end.
  const scope = yield* Scope.make()
  const connecting = yield* Effect.acquireRelease(
    NodeRedis.layer({
      url: Redacted.value(url),
      disableOfflineQueue: true,
      // Turned off: late replies are handled below. The client's own timeout costs a timer and an abort signal per
      // command, and the timer outlives the reply.
      commandOptions: { timeout: 0 },
      pingInterval: 500,
      socket: { connectTimeout: 1000, socketTimeout: 1000, reconnectStrategy: false }
    }).pipe(
      Layer.buildWithScope(scope),
      // `make` logs a failure once, so the client logs nothing.
      Effect.provideService(References.MinimumLogLevel, "None"),
      Effect.forkDetach
    ),
    (fiber) => Effect.forkDetach(Effect.andThen(Fiber.await(fiber), Scope.close(scope, Exit.void)))
  )
  const connection = yield* Fiber.join(connecting)
  const { client } = Context.get(connection, NodeRedis.NodeRedis)
  const redis = Context.get(connection, Redis.Redis)

  const lost = yield* Deferred.make<never, RedisDown>()
  const cut = (cause: unknown): RedisDown => {
    const down = new RedisDown({ cause })
    Deferred.doneUnsafe(lost, Exit.fail(down))
    if (client.isOpen) client.destroy()
    return down
  }
  yield* Effect.addFinalizer(() => Effect.sync(() => cut(new Error("The service stops"))))
  client.on("error", cut)

  const milliseconds = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  /**
   * The time during which this process could have read a reply. While the process stood still, for lack of a core or in
   * a long task, Redis was not late.
   */
  let awake = 0
  let lookedAt = milliseconds()
  /** The times of the commands that wait for a reply. */
  const waiting = new FreeList<{ readonly since: number }>()
  let lastAnswer = 0
  let suspicious = false
  const watch = Effect.sync(() => {
    const now = milliseconds()
    awake += Math.min(now - lookedAt, 2 * checkIntervalMs)
    lookedAt = now
    let oldest = Infinity
    for (const { since } of waiting) oldest = Math.min(oldest, since)
    const late = awake - Math.max(oldest, lastAnswer) >= timeout || awake - oldest >= maxReplyTimeMs
    // A second check confirms it: replies that arrived while the process stood still are not read yet.
    if (late && suspicious) cut(new Error(`No answer for ${timeout} milliseconds`))
    suspicious = late
  })
  yield* Effect.forkScoped(Effect.repeat(watch, Schedule.spaced(checkIntervalMs)))

  const run: RedisConnection["run"] = (command) =>
    Effect.withFiber(({ context }) => {
      const asked = milliseconds()
      const place = waiting.add({ since: awake })
      const answered = Effect.onExit(command(redis), (exit) => {
        waiting.remove(place)
        if (Exit.hasInterrupts(exit)) return Effect.void
        lastAnswer = awake
        durations.updateUnsafe((milliseconds() - asked) / 1000, context)
        return Effect.void
      })
      // An error reply is a reply too, unless it shows that the server cannot serve.
      return Effect.mapError(answered, ({ cause }) => isRefusal(cause) ? new RedisDown({ cause }) : cut(cause))
    })

  // A server that only reads, or that rejects the command, is useless.
  yield* run(({ send }) => send("SET", "petstore:limits:probe", "", "PX", "1000"))
  const link: RedisConnection = { run }
  return { link, lost: Deferred.await(lost) }
})

const isRefusal = (cause: unknown): boolean =>
  cause instanceof ErrorReply &&
  !/^(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|OOM|READONLY|TRYAGAIN)/.test(cause.message)
