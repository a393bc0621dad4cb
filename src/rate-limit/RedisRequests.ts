/**
 * Sends commands to Redis with a bounded wait, behind a circuit breaker for each server: the first late reply opens it,
 * and a reply to a probe closes it. In a cluster each master is a server.
 */
import { Cause, Clock, Duration, Effect, Fiber, FiberSet, Latch, Metric, Schedule } from "effect"
import { ErrorReply } from "redis"
import { Settings } from "../config/Settings.ts"
import { describe } from "../observability/LogLines.ts"
import type { Caller } from "./CallerStates.ts"
import { RedisClient, unnamedServer } from "./RedisClient.ts"
import type { Command, Reply } from "./RedisScript.ts"

/**
 * A reply is late after this number of ticks of a timer. A pause of this process is one tick, and the replies that
 * arrived meanwhile are read before the next one.
 */
const ticksPerTimeout = 10
const probeInterval = "250 millis"
/** How long a probe waits for a late reply: a client on which nothing else is sent cuts a silent connection meanwhile. */
const probeTimeout = Duration.seconds(5)
const nobody: Caller = "key:probe"

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
})
const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while a Redis server does not respond and this process counts its callers by itself, else 0."
})

/** Errors that show that the server cannot serve any request, or that it is a node of a cluster. */
const isUseless =
  /^(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY)|ACL failure|can't run/
/** Returns whether Redis rejected this command alone. A slot can move to a node that the client does not know yet. */
const isRejection = (error: unknown): boolean =>
  error instanceof ErrorReply && !isUseless.test(error.message) ||
  error instanceof Error && error.message.startsWith("Cannot find node")

interface InFlight {
  readonly server: string
  readonly caller: Caller
  readonly sentAt: number
  readonly lateAtTick: number
  readonly onFailure: () => void
}

/** Connects to Redis, and waits for that for at most one second. */
export const make = Effect.gen(function*() {
  const client = yield* RedisClient
  const timeout = Duration.millis(yield* Settings.redisTimeoutMs.config)
  const context = yield* Effect.context()
  const fork = yield* FiberSet.makeRuntime()
  const clock = yield* Clock.Clock
  const now = (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  /** The servers whose breaker is open. Each has a fiber that probes it. */
  const down = new Set<string>([unnamedServer])
  let isReported = false
  /** The last error of a connection. It has the reason for which a client is offline. */
  let lastError: unknown
  client.onError((error) => {
    lastError = error
    if (down.has(unnamedServer)) fork(reportDown(unnamedServer, error))
  })

  const reportDown = (server: string, cause: unknown) =>
    Effect.suspend(() => {
      fallback.updateUnsafe(1, context)
      if (isReported) return Effect.void
      isReported = true
      const isVague = cause instanceof Error && /offline|closed|late/i.test(cause.message)
      const reason = describe(Cause.fail(isVague ? lastError ?? cause : cause))
      return Effect.logWarning(
        `REDIS_URL: ${server} cannot be used. This process counts requests by itself: ${reason}`
      )
    })
  const setUp = (server: string) =>
    Effect.suspend(() => {
      down.delete(server)
      if (down.size > 0) return Effect.void
      isReported = false
      lastError = undefined
      fallback.updateUnsafe(0, context)
      return Effect.logInfo("Limits are counted in Redis")
    })

  // A mutable set and one timer for all commands: a fiber and a timeout for each would cost more.
  const inFlight = new Set<InFlight>()
  /** Open while commands or probes are in flight. An idle process has no timer. */
  const isBusy = Latch.makeUnsafe(false)
  let ticks = 0
  let probes = 0

  const probeServer = (caller: Caller) =>
    Effect.suspend(() => {
      const lateAtTick = ticks + ticksPerTimeout
      probes++
      isBusy.openUnsafe()
      return Effect.tryPromise(() => client.run(caller, { verb: "probe" })).pipe(
        Effect.tapError(({ cause }) => reportDown(unnamedServer, cause)),
        Effect.timeout(Duration.sum(timeout, probeTimeout)),
        Effect.filterOrFail(() => ticks < lateAtTick),
        Effect.ensuring(Effect.sync(() => probes--))
      )
    })
  const recover = (server: string, caller: Caller) =>
    probeServer(caller).pipe(Effect.retry(Schedule.spaced(probeInterval)), Effect.andThen(setUp(server)))

  const setDown = (server: string, caller: Caller, cause: unknown): void => {
    if (down.has(server)) return
    down.add(server)
    fork(Effect.andThen(reportDown(server, cause), Effect.delay(recover(server, caller), probeInterval)))
  }

  /** Returns whether the command had no outcome yet. */
  const settle = (command: InFlight): boolean => {
    if (!inFlight.delete(command)) return false
    durations.updateUnsafe((now() - command.sentAt) / 1000, context)
    return true
  }
  const fail = (command: InFlight, cause: unknown): void => {
    if (!settle(command)) return
    if (!isRejection(cause)) setDown(command.server, command.caller, cause)
    command.onFailure()
  }
  const tick = Effect.sync(() => {
    ticks++
    // The set has the oldest command first.
    for (const command of inFlight) {
      if (command.lateAtTick > ticks) break
      fail(command, new Error("The reply of Redis is late"))
    }
    if (inFlight.size + probes === 0) isBusy.closeUnsafe()
  })
  yield* Effect.forkScoped(
    Effect.forever(Effect.andThen(isBusy.await, Effect.delay(tick, Duration.divideUnsafe(timeout, ticksPerTimeout))))
  )

  const connected = client.connect.pipe(
    Effect.tapError(({ cause }) => reportDown(unnamedServer, cause)),
    Effect.retry(Schedule.spaced(probeInterval)),
    Effect.andThen(recover(unnamedServer, nobody))
  )
  const first = yield* Effect.forkScoped(connected)
  // Requests right after the start are counted in Redis too.
  yield* Effect.timeoutOption(Fiber.await(first), "1 second")
  fallback.updateUnsafe(down.size > 0 ? 1 : 0, context)

  return {
    isUp: (): boolean => down.size === 0,
    /** Runs a command. Calls `onFailure` if Redis does not reply in time, also if the command may still run. */
    send(caller: Caller, command: Command, onReply: (reply: Reply) => void, onFailure: () => void): void {
      const server = client.serverOf(caller)
      if (down.has(server)) {
        onFailure()
        return
      }
      const sent = { server, caller, sentAt: now(), lateAtTick: ticks + ticksPerTimeout, onFailure }
      inFlight.add(sent)
      isBusy.openUnsafe()
      client.run(caller, command).then(
        (reply) => settle(sent) && onReply(reply),
        (error: unknown) => fail(sent, error)
      )
    }
  }
})
