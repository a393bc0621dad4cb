/**
 * The rate limiter that counts in Redis, for any number of processes, on a time that they share (`SharedClock.ts`). It
 * counts a caller in one shard (`Shards.ts`). While the shard does not reply, this process decides from its own counts
 * (`LocalCounts.ts`). It asks the shard about a caller again once its local counts are merged there.
 *
 * The requests of a caller in one turn of the event loop are one script call (`TurnBatcher.ts`). The client node-redis
 * writes all commands of a turn to the socket at once.
 */
import { Effect, Layer, Metric } from "effect"
import type { Redis } from "effect/persistence"
import type { Limits } from "../../api/Plans.ts"
import * as Settings from "../../config/Settings.ts"
import { startAtZero } from "../../observability/Metrics.ts"
import type { Caller } from "../CallerStates.ts"
import type { Limiter } from "../Limiter.ts"
import * as Policy from "../Policy.ts"
import { RateLimiter } from "../RateLimiter.ts"
import type { SharedTime } from "./ClockScripts.ts"
import { LocalCounts } from "./LocalCounts.ts"
import * as RedisScripts from "./RedisScripts.ts"
import { asking, type Route, type Shard } from "./Shard.ts"
import * as Shards from "./Shards.ts"
import type { SharedClock } from "./SharedClock.ts"
import { type Batch, countCharges, decideBatch, TurnBatcher } from "./TurnBatcher.ts"

const localDecisions = Metric.counter("rate_limit_fallback_decisions_total", {
  description: "Decisions made without Redis.",
  incremental: true
})

/** The maximum of servers to which a cluster redirects one script. */
const maxRedirections = 3

type Script = (
  redis: Redis.Redis["Service"],
  time: SharedTime
) => Effect.Effect<RedisScripts.Reply | null, Redis.RedisError>

type Replied = ReturnType<typeof RedisScripts.read>

/** Runs `script` on the shared time of a route. */
const run = ({ clock, connection, isAsking }: Route, script: Script) =>
  clock.run(
    connection,
    (redis, time) =>
      Effect.map(
        script(isAsking ? asking(redis) : redis, time),
        (reply) => reply === null ? null : RedisScripts.read(reply)
      )
  )

/** Resumes the calls of a batch, after all state is set: what they run may charge again. */
const resume = ({ calls }: Batch, decisions: ReadonlyArray<Policy.Decision>, clock: SharedClock): void => {
  const offset = clock.wallOffset()
  for (const [index, decision] of decisions.entries()) calls[index]?.resume(Policy.shiftDecision(decision, offset))
}

const make = Effect.gen(function*() {
  const url = yield* Settings.redisUrl.config
  /** The context of batches, and for metrics that are recorded within a decision. */
  const context = yield* Effect.context()
  yield* startAtZero([localDecisions])
  const localCounts: LocalCounts = yield* LocalCounts.make(
    (caller) => shards.of(caller).clock.now(),
    (route, caller, merge) => run(route, (redis, time) => redis.eval(RedisScripts.merge)(caller, merge, time))
  )
  const shards = yield* Shards.make(url, {
    onFirst: (offset, isMember) => localCounts.shift(offset, isMember),
    onUp: (route, isMember) => localCounts.mergeAll(route, isMember)
  })

  /** Runs `script` on a route once the local counts of `caller` are merged there. */
  const runMerged = (route: Route, caller: Caller, script: Script) =>
    localCounts.isMerged(caller, route)
      ? run(route, script)
      : Effect.andThen(localCounts.merge(route, caller), run(route, script))

  const { redirect } = shards
  /** Runs `script` for `caller` in Redis, or `fallback` while its shard does not reply. */
  const runOrFallBack = <A>(
    caller: Caller,
    script: Script,
    onReply: (reply: Replied, route: Route) => A,
    fallback: () => A
  ): Effect.Effect<A> => {
    /** Follows the redirections of a cluster, in which no script has run. */
    const follow = (route: Route, shard: Shard, left: number): Effect.Effect<A> =>
      Effect.matchEffect(runMerged(route, caller, script), {
        onFailure: (error) => {
          const next = left === 0 ? undefined : redirect?.(error, shard)
          return next === undefined ? Effect.sync(fallback) : follow(next.route, next.shard, left - 1)
        },
        onSuccess: (reply) => Effect.sync(() => onReply(reply, route))
      })
    return Effect.suspend(() => {
      const shard = shards.of(caller)
      const route = shard.route()
      if (route === undefined) return Effect.sync(fallback)
      if (redirect !== undefined) return follow(route, shard, maxRedirections)
      return Effect.match(runMerged(route, caller, script), {
        onFailure: fallback,
        onSuccess: (reply) => onReply(reply, route)
      })
    })
  }

  const decideLocally = (batch: Batch): void => {
    const { clock } = shards.of(batch.caller)
    const state = localCounts.get(batch.caller)
    const { decisions, next } = decideBatch(batch, state, clock.now())
    if (next !== state) localCounts.set(batch.caller, next)
    localDecisions.updateUnsafe(countCharges(batch), context)
    resume(batch, decisions, clock)
  }

  const runBatch = Effect.runForkWith(context)
  const batcher = new TurnBatcher((batch) =>
    runBatch(runOrFallBack(
      batch.caller,
      (redis, time) => redis.eval(RedisScripts.charge)(batch.caller, batch.limits, countCharges(batch), time),
      ({ now, state }, route) => {
        const { decisions, next } = decideBatch(batch, state, now)
        localCounts.confirm(batch.caller, next, route)
        resume(batch, decisions, route.clock)
      },
      () => decideLocally(batch)
    ))
  )
  const decide = (caller: Caller, limits: Limits, isCharge: boolean) =>
    // An interruption does not take a call out of its batch: the request was made.
    Effect.callback<Policy.Decision>((done) => {
      const call = { isCharge, resume: (decision: Policy.Decision) => done(Effect.succeed(decision)) }
      if (shards.of(caller).route() === undefined) decideLocally({ caller, limits, calls: [call] })
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
          ({ state }, route) => localCounts.confirm(caller, state, route),
          () => localCounts.set(caller, Policy.unban(localCounts.get(caller), shards.of(caller).clock.now()))
        )
      }),
    counting: Effect.sync(() => shards.areUp() ? "shared" : "fallback")
  }
  return service
})

/** Counts in the Redis at `REDIS_URL`, together with all other processes. */
export const layer = Layer.effect(RateLimiter, make)
