/**
 * Sends commands to Redis with a timeout, behind one circuit breaker for each master. Laws:
 *
 * - Each command ends once, within the timeout (pauses of the process do not count): by `onReply`, or by `onFailure`,
 *   which is also called if `onReply` throws. A later reply changes nothing.
 * - A timeout, a lost connection, a server error or an exception of the client opens the breaker of the command's
 *   master, and fails the commands in flight to that master in the same turn. An error that concerns only one command
 *   (`isCommandError`) opens no breaker.
 * - While a breaker is open, it sends one probe at a time and no command. A successful reply to a probe, within the
 *   timeout of a command, closes the breaker.
 * - If a callback throws, only its own command fails, and the exception is logged.
 * - When the scope closes, commands in flight fail. From then on, no command is sent.
 */
import { Cause, Clock, Duration, Effect, Fiber, FiberSet, Latch, Schedule } from "effect"
import { ErrorReply } from "redis"
import type { Caller } from "./RateLimiter.ts"
import { RedisClient, type RedisOptions, unnamedServer } from "./RedisClient.ts"
import type { Command, Reply } from "./RedisScript.ts"

/** Timeouts are measured in timer ticks, so that a pause of this process does not time out the commands in flight. */
const ticksPerTimeout = 10
const probeInterval = "250 millis"
/**
 * A probe waits this much longer than a command, and so longer than `socketTimeout` (`RedisClient.ts`): a dead
 * connection is then closed before the next probe.
 */
const extraProbeTimeout = Duration.seconds(5)

const isServerError =
  /^(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY)|ACL failure|can't run/
/** Command errors do not open the breaker. For example, "Cannot find node" occurs while a cluster slot moves. */
const isCommandError = (error: unknown): boolean =>
  error instanceof ErrorReply && !isServerError.test(error.message) ||
  error instanceof Error && error.message.startsWith("Cannot find node")

interface InFlight {
  readonly server: string
  readonly caller: Caller
  readonly sentAt: number
  readonly lateAtTick: number
  readonly onFailure: () => void
}

export type BreakerOptions = Pick<RedisOptions, "logDown" | "metrics" | "timeout">

export const make = Effect.fnUntraced(function*({ logDown, metrics, timeout }: BreakerOptions) {
  const client = yield* RedisClient
  const { durations, fallback } = metrics
  const context = yield* Effect.context()
  const fork = yield* FiberSet.makeRuntime()
  const clock = yield* Clock.Clock
  const now = (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  const down = new Set<string>([unnamedServer])
  let isReported = false
  let lastClientError: unknown
  client.onError((error) => {
    lastClientError = error
    if (down.has(unnamedServer)) fork(reportDown(unnamedServer, error))
  })

  const reportDown = (server: string, cause: unknown) =>
    Effect.suspend(() => {
      fallback.updateUnsafe(1, context)
      if (isReported) return Effect.void
      isReported = true
      const isVague = cause instanceof Error && /offline|closed|in time/i.test(cause.message)
      return logDown(server, isVague ? lastClientError ?? cause : cause)
    })
  const markUp = (server: string) =>
    Effect.suspend(() => {
      down.delete(server)
      if (down.size > 0) return Effect.void
      isReported = false
      lastClientError = undefined
      fallback.updateUnsafe(0, context)
      return Effect.logInfo("Requests are counted in Redis")
    })

  /**
   * Runs a callback, and logs its exception: outside of fibers, an exception would end the process. Returns whether
   * `run` succeeded.
   */
  const attempt = (run: () => void): boolean => {
    try {
      run()
      return true
    } catch (defect) {
      fork(Effect.logError("A reply from Redis could not be used", Cause.die(defect)))
      return false
    }
  }

  const inFlight = new Set<InFlight>()
  let isClosed = false
  const hasWork = yield* Latch.make()
  let ticks = 0
  let probes = 0

  const recover = (server: string, caller: Caller) =>
    Effect.suspend(() => {
      const lateAtTick = ticks + ticksPerTimeout
      probes++
      hasWork.openUnsafe()
      return Effect.tryPromise(() => client.run(caller, { verb: "probe" })).pipe(
        Effect.tapError(({ cause }) => reportDown(unnamedServer, cause)),
        Effect.timeout(Duration.sum(timeout, extraProbeTimeout)),
        Effect.filterOrFail(() => ticks < lateAtTick),
        Effect.ensuring(Effect.sync(() => probes--))
      )
    }).pipe(Effect.retry(Schedule.spaced(probeInterval)), Effect.andThen(markUp(server)))

  const markDown = (server: string, caller: Caller, cause: unknown): void => {
    if (isClosed || down.has(server)) return
    down.add(server)
    // Fail the commands in flight too: a late reply would overwrite counts that this process has made in memory.
    for (const command of inFlight) if (command.server === server) fail(command, cause)
    fork(Effect.andThen(reportDown(server, cause), Effect.delay(recover(server, caller), probeInterval)))
  }

  const settle = (command: InFlight): boolean => {
    if (!inFlight.delete(command)) return false
    durations.updateUnsafe((now() - command.sentAt) / 1000, context)
    return true
  }
  const fail = (command: InFlight, cause: unknown): void => {
    if (!settle(command)) return
    attempt(command.onFailure)
    if (!isCommandError(cause)) markDown(command.server, command.caller, cause)
  }
  const tick = Effect.sync(() => {
    ticks++
    for (const command of inFlight) {
      if (command.lateAtTick > ticks) break
      fail(command, new Error("Redis did not reply in time"))
    }
    if (inFlight.size + probes === 0) hasWork.closeUnsafe()
  })
  yield* Effect.forkScoped(
    Effect.forever(Effect.andThen(hasWork.await, Effect.delay(tick, Duration.divideUnsafe(timeout, ticksPerTimeout))))
  )

  const connected = client.connect.pipe(
    Effect.tapError(({ cause }) => reportDown(unnamedServer, cause)),
    Effect.retry(Schedule.spaced(probeInterval)),
    Effect.andThen(recover(unnamedServer, "key:probe"))
  )
  const first = yield* Effect.forkScoped(connected)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const command of inFlight) fail(command, new Error("The service stops"))
    })
  )
  // At startup, wait up to one second for Redis, so that even the first requests are counted there.
  yield* Effect.timeoutOption(Fiber.await(first), "1 second")
  fallback.updateUnsafe(down.size > 0 ? 1 : 0, context)

  /** An async function, so that an exception of the client becomes a rejection. */
  const run = async (caller: Caller, command: Command): Promise<Reply> => client.run(caller, command)

  return {
    attempt,
    isUp: (): boolean => down.size === 0,
    /**
     * Calls `onFailure` if the master is down, the command fails, `onReply` throws, or the scope closes. If the command
     * was already sent, Redis may have run it, or may run it later.
     */
    send(caller: Caller, command: Command, onReply: (reply: Reply) => void, onFailure: () => void): void {
      const server = client.serverOf(caller)
      if (isClosed || down.has(server)) return void attempt(onFailure)
      const sent = { server, caller, sentAt: now(), lateAtTick: ticks + ticksPerTimeout, onFailure }
      inFlight.add(sent)
      hasWork.openUnsafe()
      const receive = (reply: Reply): void => {
        if (settle(sent) && !attempt(() => onReply(reply))) attempt(onFailure)
      }
      void run(caller, command).then(receive, (error: unknown) => fail(sent, error))
    }
  }
})
