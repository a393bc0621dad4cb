/**
 * The connection to one Redis server. One late reply or one error closes it, so that all commands in flight fail at
 * once. Then new connections are tried until one replies in time.
 */
import { Cause, Clock, Deferred, Effect, Exit, Latch, Metric, type Scope } from "effect"
import type { Redis } from "effect/persistence"
import { ErrorReply } from "redis"
import { describe } from "../../observability/LogLines.ts"
import { type RedisClient, RedisDown } from "./RedisClient.ts"
import { checkIntervalMs, maxSilenceMs, ReplyWatch } from "./ReplyWatch.ts"

const pauseBetweenAttemptsMs = 250

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]
})

/** A connection that is up. */
export interface RedisConnection {
  /**
   * Runs a command. It fails after 50 ms without any reply on the connection, and after 120 ms even if replies to
   * earlier commands keep arriving.
   */
  readonly run: <A>(
    command: (redis: Redis.Redis["Service"]) => Effect.Effect<A, Redis.RedisError>
  ) => Effect.Effect<A, RedisDown>
}

/** The server of a connection, and the use of the connection. */
interface Options<A> {
  /** Opens a client of the server. Each attempt to connect runs it. */
  readonly open: Effect.Effect<RedisClient, unknown, Scope.Scope>
  /** The name of the server in log lines. */
  readonly name: () => string
  /** Whether the server is a node of a cluster, which may redirect a command. */
  readonly isNode: boolean
  /** Runs before a new connection is used. It fails if the server cannot be used. */
  readonly onConnect: (connection: RedisConnection) => Effect.Effect<A, RedisDown>
  /** Runs while the result of `onConnect` is used. */
  readonly onUp: (current: A) => Effect.Effect<void>
  /** Runs when a connection is up or down. */
  readonly onChange: Effect.Effect<void>
}

/** A connection that is opened again when it is lost. */
export interface Lasting<A> {
  /** Returns the result of `onConnect`, or `undefined` while the connection is down. */
  readonly current: () => A | undefined
  /** Closes the connection because of `cause`, to open a new one at once. */
  readonly close: (cause: unknown) => void
}

/** Keeps a connection open until the scope closes. */
export const make = Effect.fnUntraced(function*<A>(options: Options<A>) {
  let current: A | undefined
  /** Whether the log says that Redis is down. */
  let isReported = false
  /** Ends the present connection, or the present attempt to connect. */
  let close: ((cause: unknown) => void) | undefined
  let pauseMs = pauseBetweenAttemptsMs

  const stayUp = Effect.gen(function*() {
    const lost = yield* Deferred.make<never, RedisDown>()
    close = (cause) => {
      current = undefined
      pauseMs = 0
      Deferred.doneUnsafe(lost, Exit.fail(new RedisDown({ cause })))
    }
    const use = Effect.gen(function*() {
      const up = yield* options.onConnect(yield* connect(options, lost))
      current = up
      isReported = false
      yield* Effect.logInfo(`Limits are counted in ${options.name()}`)
      yield* options.onChange
      yield* options.onUp(up)
      return yield* Effect.never
    })
    return yield* Effect.raceFirst(Effect.scoped(use), Deferred.await(lost))
  })

  const pause = Effect.fnUntraced(function*(cause: Cause.Cause<unknown>) {
    current = undefined
    yield* options.onChange
    if (!isReported) {
      yield* Effect.logWarning(
        `${options.name()} cannot be used. This process counts requests by itself: ${describe(cause)}`
      )
    }
    isReported = true
    yield* Effect.sleep(pauseMs)
    pauseMs = pauseBetweenAttemptsMs
  })

  yield* Effect.forkScoped(Effect.forever(Effect.catchCause(stayUp, pause)))
  const lasting: Lasting<A> = { current: () => current, close: (cause) => close?.(cause) }
  return lasting
})

/** Opens one connection. It is closed with the scope, and when `lost` fails: a command can cause that too. */
const connect = Effect.fnUntraced(function*(
  { isNode, open }: Pick<Options<never>, "isNode" | "open">,
  lost: Deferred.Deferred<never, RedisDown>
) {
  const { client, redis } = yield* open
  const cut = (cause: unknown): RedisDown => {
    const down = new RedisDown({ cause })
    Deferred.doneUnsafe(lost, Exit.fail(down))
    if (client.isOpen) client.destroy()
    return down
  }
  yield* Effect.addFinalizer(() => Effect.sync(() => cut(new Error("The connection is no longer needed"))))
  client.on("error", cut)
  const connection: RedisConnection = { run: yield* makeRun(redis, isNode, cut) }
  return connection
})

/** Returns a function that runs a command. It calls `cut` if a reply is late, or shows that the server cannot serve. */
const makeRun = Effect.fnUntraced(function*(
  redis: Redis.Redis["Service"],
  isNode: boolean,
  cut: (cause: unknown) => RedisDown
) {
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
        if (watch.isLate(now())) cut(new Error(`No response for ${maxSilenceMs} milliseconds`))
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
      return Effect.mapError(replied, ({ cause }) => isRejection(cause, isNode) ? new RedisDown({ cause }) : cut(cause))
    })
  return run
})

/** Errors that show that the server cannot serve any command. Others reject one command. */
const isUseless = /^(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|OOM|READONLY)/
/** Errors of a cluster about one key. A client that knows no slots cannot use the server. */
const isAboutSlot = /^(ASK|CROSSSLOT|MOVED|TRYAGAIN)/

/** Returns whether Redis rejected the command alone. */
const isRejection = (cause: unknown, isNode: boolean): boolean =>
  cause instanceof ErrorReply && !isUseless.test(cause.message) && (isNode || !isAboutSlot.test(cause.message))
