/**
 * The rate limiter that counts in Redis, for any number of processes, on a time that they share (`SharedClock.ts`).
 * While Redis does not reply, this process decides from its own counts (`LocalCounts.ts`). It asks Redis about a caller
 * again once its local counts are merged there.
 *
 * The requests of a caller in one turn of the event loop are one script call (`TurnBatcher.ts`). node-redis writes all
 * commands of a turn to the socket at once.
 */
import { Clock, Effect, Layer, Metric, Schedule } from "effect"
import type { Redis } from "effect/persistence"
import type { Limits } from "../../api/Plans.ts"
import * as Settings from "../../config/Settings.ts"
import type { Caller } from "../CallerStates.ts"
import type { Limiter } from "../Limiter.ts"
import * as Policy from "../Policy.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as SteadyClock from "../SteadyClock.ts"
import type { SharedTime } from "./ClockScripts.ts"
import { LocalCounts } from "./LocalCounts.ts"
import * as RedisConnection from "./RedisConnection.ts"
import * as RedisScripts from "./RedisScripts.ts"
import { SharedClock } from "./SharedClock.ts"
import { type Batch, countCharges, decideBatch, TurnBatcher } from "./TurnBatcher.ts"

const localDecisions = Metric.counter("rate_limit_fallback_decisions_total", {
  description: "Decisions made without Redis.",
  incremental: true
})

/** The interval of synchronizations with the shared time, so that clock drift never looks like a step. */
const synchronizationInterval = "500 millis"

type Script = (
  redis: Redis.Redis["Service"],
  time: SharedTime
) => Effect.Effect<RedisScripts.Reply | null, Redis.RedisError>

type Replied = ReturnType<typeof RedisScripts.read>

const make = Effect.gen(function*() {
  const url = yield* Settings.redisUrl.config
  /** The context of batches, and for metrics that are recorded within a decision. */
  const context = yield* Effect.context()
  const clock = new SharedClock(SteadyClock.make(yield* Clock.Clock), (offset) => localCounts.shift(offset))
  const run = (connection: RedisConnection.RedisConnection, script: Script) =>
    clock.run(
      connection,
      (redis, time) => Effect.map(script(redis, time), (reply) => reply === null ? null : RedisScripts.read(reply))
    )
  const localCounts = yield* LocalCounts.make(
    () => clock.now(),
    (connection, caller, merge) => run(connection, (redis, time) => redis.eval(RedisScripts.merge)(caller, merge, time))
  )
  const connections = yield* RedisConnection.make(url, {
    onConnect: (connection) => clock.synchronize(connection),
    onUp: (connection) =>
      Effect.andThen(
        localCounts.mergeAll(connection),
        Effect.repeat(Effect.ignore(clock.synchronize(connection)), Schedule.spaced(synchronizationInterval))
      )
  })

  /** Runs `script` for `caller` once its local counts are merged, or `fallback` while Redis does not reply. */
  const runOrFallBack = <A>(
    caller: Caller,
    script: Script,
    onReply: (reply: Replied, connection: RedisConnection.RedisConnection) => A,
    fallback: () => A
  ): Effect.Effect<A> =>
    Effect.suspend(() => {
      const connection = connections.current()
      if (connection === undefined) return Effect.sync(fallback)
      const replied = localCounts.isMerged(caller, connection)
        ? run(connection, script)
        : Effect.andThen(localCounts.merge(connection, caller), run(connection, script))
      return Effect.match(replied, { onFailure: fallback, onSuccess: (reply) => onReply(reply, connection) })
    })

  /** Resumes the calls of a batch, after all state is set: what they run may charge again. */
  const resume = ({ calls }: Batch, decisions: ReadonlyArray<Policy.Decision>): void => {
    const offset = clock.wallOffset()
    for (const [index, decision] of decisions.entries()) calls[index]?.resume(Policy.shiftDecision(decision, offset))
  }

  const decideLocally = (batch: Batch): void => {
    const state = localCounts.get(batch.caller)
    const { decisions, next } = decideBatch(batch, state, clock.now())
    if (next !== state) localCounts.set(batch.caller, next)
    localDecisions.updateUnsafe(countCharges(batch), context)
    resume(batch, decisions)
  }

  const runBatch = Effect.runForkWith(context)
  const batcher = new TurnBatcher((batch) =>
    runBatch(runOrFallBack(
      batch.caller,
      (redis, time) => redis.eval(RedisScripts.charge)(batch.caller, batch.limits, countCharges(batch), time),
      ({ now, state }, connection) => {
        const { decisions, next } = decideBatch(batch, state, now)
        localCounts.confirm(batch.caller, next, connection)
        resume(batch, decisions)
      },
      () => decideLocally(batch)
    ))
  )
  const decide = (caller: Caller, limits: Limits, isCharge: boolean) =>
    // An interruption does not take a call out of its batch: the request was made.
    Effect.callback<Policy.Decision>((done) => {
      const call = { isCharge, resume: (decision: Policy.Decision) => done(Effect.succeed(decision)) }
      if (connections.current() === undefined) decideLocally({ caller, limits, calls: [call] })
      else batcher.add(caller, limits, call)
    })

  const service: Limiter = {
    charge: (caller, limits) => decide(caller, limits, true),
    peek: (caller, limits) => decide(caller, limits, false),
    unban: (caller) =>
      Effect.suspend(() => {
        batcher.flush()
        return runOrFallBack(
          caller,
          (redis, time) => redis.eval(RedisScripts.unban)(caller, time),
          ({ state }, connection) => localCounts.confirm(caller, state, connection),
          () => localCounts.set(caller, Policy.unban(localCounts.get(caller), clock.now()))
        )
      }),
    counting: Effect.sync(() => connections.current() === undefined ? "fallback" : "shared")
  }
  return service
})

/** Counts in the Redis at `REDIS_URL`, together with all other processes. */
export const layer = Layer.effect(RateLimiter, make)
