/**
 * Sends requests to Redis with a bounded wait. A server that does not reply gets no more requests until it replies to a
 * probe. In a cluster that holds for each master separately.
 */
import { Cause, Clock, Effect, Fiber, FiberSet, Latch, Metric, Schedule } from "effect"
import { ErrorReply } from "redis"
import type { Limits } from "../api/Plans.ts"
import type { RedisUrl } from "../config/ConnectionUrls.ts"
import { describe } from "../observability/LogLines.ts"
import type { Caller } from "./CallerStates.ts"
import * as RedisClient from "./RedisClient.ts"
import { probe, type Reply } from "./RedisScript.ts"

const checkIntervalMs = 5
/** A reply is late after so many checks, which are 35 ms. A pause of this process counts as one check. */
const maxChecks = 7
const probeInterval = "250 millis"
/** The caller of the first probe. */
const nobody: Caller = "key:probe"
const noLimits: Limits = { perMinute: 0, perDay: 0 }

const durations = Metric.histogram("rate_limit_redis_duration_seconds", {
  description: "Duration of round trips to Redis, also of those that were cut.",
  boundaries: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1]
})
const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while a Redis server does not respond and this process counts its callers by itself, else 0."
})

/** Errors that show that the server cannot serve any request, or that it is a node of a cluster. */
const isUseless =
  /^(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY)|ACL failure|can't run/
/** Returns whether one request was rejected. A slot can move to a node that has no slots yet, and is unknown. */
const isRejection = (error: unknown): boolean =>
  error instanceof ErrorReply && !isUseless.test(error.message) ||
  error instanceof Error && error.message.startsWith("Cannot find node")

/** A request without a reply. */
interface Request {
  readonly server: string
  readonly caller: Caller
  readonly sentAt: number
  /** The number of the check that finds the reply late. */
  readonly lateAt: number
  readonly onFailure: () => void
}

/** Connects to Redis, and waits for that for at most one second. */
export const make = Effect.fnUntraced(function*(url: RedisUrl) {
  const context = yield* Effect.context()
  const fork = yield* FiberSet.makeRuntime()
  const clock = yield* Clock.Clock
  const now = (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  /** The last error of a connection. It has the reason for which a client is offline. */
  let lastError: unknown
  const client = yield* RedisClient.make(url, (error) => {
    lastError = error
    if (down.has(RedisClient.unnamedServer)) fork(reportDown(RedisClient.unnamedServer, error))
  })
  /** The servers that do not reply. Each has a fiber that probes it. */
  const down = new Set<string>([RedisClient.unnamedServer])
  /** Whether the log says that Redis is down. */
  let isReported = false

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

  // A mutable set and one timer for all requests: a fiber and a timeout for each would cost more.
  const inFlight = new Set<Request>()
  /** Open while requests or probes are in flight. An idle process has no timer. */
  const isBusy = Latch.makeUnsafe(false)
  let checks = 0
  let probes = 0

  /** Waits for a reply for longer than a request does: the client cuts a connection on which nothing else is sent. */
  const probeServer = (caller: Caller) =>
    Effect.suspend(() => {
      const late = checks + maxChecks
      probes++
      isBusy.openUnsafe()
      return Effect.tryPromise(() => client.charge(caller, noLimits, probe)).pipe(
        Effect.tapError(({ cause }) => reportDown(RedisClient.unnamedServer, cause)),
        Effect.timeout("5 seconds"),
        Effect.filterOrFail(() => checks <= late),
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

  /** Returns whether the request had no outcome yet. */
  const settle = (request: Request): boolean => {
    if (!inFlight.delete(request)) return false
    durations.updateUnsafe((now() - request.sentAt) / 1000, context)
    return true
  }
  const fail = (request: Request, cause: unknown): void => {
    if (!settle(request)) return
    if (!isRejection(cause)) setDown(request.server, request.caller, cause)
    request.onFailure()
  }
  const check = Effect.sync(() => {
    checks++
    // The set has the oldest request first.
    for (const request of inFlight) {
      if (request.lateAt > checks) break
      fail(request, new Error("The reply of Redis is late"))
    }
    if (inFlight.size + probes === 0) isBusy.closeUnsafe()
  })
  yield* Effect.forkScoped(
    Effect.forever(Effect.andThen(isBusy.await, Effect.delay(check, checkIntervalMs)))
  )

  const connected = client.connect.pipe(
    Effect.tapError(({ cause }) => reportDown(RedisClient.unnamedServer, cause)),
    Effect.retry(Schedule.spaced(probeInterval)),
    Effect.andThen(recover(RedisClient.unnamedServer, nobody))
  )
  const first = yield* Effect.forkScoped(connected)
  // Requests right after the start are counted in Redis too.
  yield* Effect.timeoutOption(Fiber.await(first), "1 second")
  fallback.updateUnsafe(down.size > 0 ? 1 : 0, context)

  return {
    isUp: (): boolean => down.size === 0,
    /** Runs the script. Calls `onFailure` if it does not run in time, also if it may still run. */
    send(
      caller: Caller,
      limits: Limits,
      charges: number,
      onReply: (reply: Reply) => void,
      onFailure: () => void
    ): void {
      const server = client.serverOf(caller)
      if (down.has(server)) {
        onFailure()
        return
      }
      const request = { server, caller, sentAt: now(), lateAt: checks + maxChecks + 1, onFailure }
      inFlight.add(request)
      isBusy.openUnsafe()
      client.charge(caller, limits, charges).then(
        (reply) => settle(request) && onReply(reply),
        (error: unknown) => fail(request, error)
      )
    }
  }
})
