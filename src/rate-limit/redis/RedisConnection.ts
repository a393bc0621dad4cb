/**
 * The connection to Redis. It is up or it is down: one answer that is late, or an error, and it is cut, so that
 * whatever waits for an answer fails at once; then others are tried, until one answers in time.
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

/** How long none may come while one is due. With the time until it is noticed, nobody waits for 50 milliseconds. */
const timeout = 35
/** How long an answer may take while others come: there are more questions than Redis, or this process, is up to. */
const longestQueue = 100
/** How often it is looked whether an answer is late: milliseconds, like all here. */
const tick = 5
const betweenAttempts = 250

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]
})

const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while Redis does not answer and this process counts by itself, else 0."
})

/** Redis did not do what was asked, or not in time. */
export class RedisDown extends Data.TaggedError("LinkDown")<{ readonly cause: unknown }> {}

/** A connection that is up. */
export interface RedisConnection {
  /** Runs a command. It ends within 50 milliseconds if no answers come, within 120 if they come ever later. */
  readonly run: <A>(
    command: (redis: Redis.Redis["Service"]) => Effect.Effect<A, Redis.RedisError>
  ) => Effect.Effect<A, RedisDown>
}

/**
 * Keeps a link for as long as the scope lasts: `current` tells it, while there is one. `onConnect` runs
 * before anybody else may use a new one, `onUp` beside it. For the first it waits a second at most.
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

/** One connection that has shown that it takes writes; `lost` fails when it is no more. */
const connect = Effect.fnUntraced(function*(url: Redacted.Redacted) {
  const clock = yield* Clock.Clock
  // Its own fiber, which nobody waits for: a client that is closed while it connects waits for Redis without an end.
  const scope = yield* Scope.make()
  const connecting = yield* Effect.acquireRelease(
    NodeRedis.layer({
      url: Redacted.value(url),
      disableOfflineQueue: true,
      // Off: what is late is cut below, and the client's five seconds are a timer and an abort signal for each command,
      // of which the timer goes on when that is answered.
      commandOptions: { timeout: 0 },
      pingInterval: 500,
      socket: { connectTimeout: 1000, socketTimeout: 1000, reconnectStrategy: false }
    }).pipe(
      Layer.buildWithScope(scope),
      // What it would log is said once, by `make`.
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
   * The time in which this process could have read an answer: where it stood still between two looks, for want of a
   * core or in a long task, it is not Redis that is late, and whoever waits would have waited anyway.
   */
  let awake = 0
  let lookedAt = milliseconds()
  /** When the questions were asked that wait for their answers. */
  const waiting = new FreeList<{ readonly since: number }>()
  let lastAnswer = 0
  let suspicious = false
  const watch = Effect.sync(() => {
    const now = milliseconds()
    awake += Math.min(now - lookedAt, 2 * tick)
    lookedAt = now
    let oldest = Infinity
    for (const { since } of waiting) oldest = Math.min(oldest, since)
    const late = awake - Math.max(oldest, lastAnswer) >= timeout || awake - oldest >= longestQueue
    // At second sight: what came while this process stood still is there, but not yet read.
    if (late && suspicious) cut(new Error(`No answer for ${timeout} milliseconds`))
    suspicious = late
  })
  yield* Effect.forkScoped(Effect.repeat(watch, Schedule.spaced(tick)))

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
      // A refusal is an answer too, unless it says that there is nothing to be had of this server.
      return Effect.mapError(answered, ({ cause }) => isRefusal(cause) ? new RedisDown({ cause }) : cut(cause))
    })

  // One that only reads, or that refuses, is of no use.
  yield* run(({ send }) => send("SET", "petstore:limits:probe", "", "PX", "1000"))
  const link: RedisConnection = { run }
  return { link, lost: Deferred.await(lost) }
})

const isRefusal = (cause: unknown): boolean =>
  cause instanceof ErrorReply &&
  !/^(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|OOM|READONLY|TRYAGAIN)/.test(cause.message)
