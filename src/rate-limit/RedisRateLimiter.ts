/**
 * Counts requests in Redis, shared by all processes. While Redis is down, each process counts in memory, starting from
 * the last counts that Redis returned. These local counts are never merged into Redis.
 *
 * - Each call gets exactly one decision, within the timeout of Redis, from the reply of Redis or from memory.
 * - Each charge is in one command at most, also if its caller was interrupted. Redis never gets a charge twice.
 * - The charges of one key or address are decided in their order. Those of one command have the same limits.
 * - Counts in memory go on from the reply to the newest command, also if the reply to an older one comes later.
 * - A call whose decision cannot be used, or a batch that cannot be decided, takes nothing from other calls.
 */
import { Clock, Context, Effect, Exit, Layer, Tracer } from "effect"
import { counter, startAtZero } from "../observability/MetricConstructors.ts"
import * as Policy from "./Policy.ts"
import { type Caller, isKey, makeStates, RateLimiter } from "./RateLimiter.ts"
import * as RedisCircuitBreaker from "./RedisCircuitBreaker.ts"
import { RedisClient, type RedisOptions } from "./RedisClient.ts"

/** The states for an outage. Evicting one allows its key at most one more limit per window in this process, then. */
const maxKeys = 100_000

/** Each batch is one run of the Lua script. Redis serves no other client during a run, so runs must be short. */
const maxCallsPerBatch = 128

const localDecisions = counter("rate_limit_fallback_decisions_total", "Rate limit decisions made without Redis.")

interface Call {
  readonly verb: "charge" | "peek"
  readonly resume: (decision: Exit.Exit<Policy.Decision>) => void
}

/**
 * The calls for one key or address in an event-loop turn. `Batcher` is not used, because a batch must keep their order
 * and must not be interrupted: Redis may already have counted the requests.
 */
interface Batch {
  readonly caller: Caller
  readonly limits: Policy.Limits
  readonly calls: Array<Call>
  /** Ascends from command to command. */
  readonly number: number
}

const countCharges = ({ calls }: Batch): number => calls.filter(({ verb }) => verb === "charge").length

const make = Effect.fnUntraced(function*(options: RedisCircuitBreaker.BreakerOptions) {
  const context = yield* Effect.context()
  const clock = yield* Clock.Clock
  const callers = yield* makeStates({ maxKeys })
  yield* startAtZero([localDecisions])
  const requests = yield* RedisCircuitBreaker.make(options)

  let lastNumber = 0
  /** The number of the newest command whose reply a state in memory contains. */
  const numbers = new WeakMap<Policy.State, number>()
  /** Keeps the state `next` that follows `before`, unless `before` is from the reply to an older command. */
  const keep = (caller: Caller, number: number, before: Policy.State, next: Policy.State): void => {
    const known = callers.get(caller)
    const knownNumber = numbers.get(known) ?? 0
    if (before !== known && number < knownNumber) return
    if (next !== known) numbers.set(next, Math.max(number, knownNumber))
    callers.set(caller, next)
  }

  const decide = ({ caller, calls, limits, number }: Batch, state: Policy.State, now: number): void => {
    let next = state
    const decisions = calls.map(({ verb }) => {
      if (verb === "peek") return Policy.peek(next, limits, now)
      const charged = Policy.decide(next, limits, now, isKey(caller))
      next = charged.next
      return charged.decision
    })
    keep(caller, number, state, next)
    for (const [index, { resume }] of calls.entries()) {
      const decision = decisions[index]
      if (decision !== undefined) requests.attempt(() => resume(Exit.succeed(decision)))
    }
  }
  const decideLocally = (batch: Batch): void => {
    localDecisions.updateUnsafe(countCharges(batch), context)
    const now = clock.currentTimeMillisUnsafe()
    if (requests.attempt(() => decide(batch, callers.get(batch.caller), now))) return
    const failure = Exit.die(new Error("The rate limit could not be decided"))
    for (const { resume } of batch.calls) requests.attempt(() => resume(failure))
  }
  const send = (batch: Batch): void => {
    const charges = countCharges(batch)
    requests.send(
      batch.caller,
      charges === 0 ? { verb: "peek" } : { verb: "charge", requests: charges, limits: batch.limits },
      ({ now, state }) => decide(batch, state, now),
      () => decideLocally(batch)
    )
  }

  let batches = new Map<Caller, Batch>()
  const flush = (): void => {
    const sent = batches
    batches = new Map()
    for (const batch of sent.values()) send(batch)
  }
  const add = (caller: Caller, limits: Policy.Limits, call: Call): void => {
    const open = batches.get(caller)
    if (open !== undefined) {
      const { perDay, perMinute } = open.limits
      if (perDay === limits.perDay && perMinute === limits.perMinute && open.calls.length < maxCallsPerBatch) {
        open.calls.push(call)
        return
      }
      flush()
    }
    if (batches.size === 0) setImmediate(flush)
    batches.set(caller, { caller, limits, calls: [call], number: ++lastNumber })
  }
  const call = (verb: Call["verb"]) => (caller: Caller, limits: Policy.Limits) => {
    // If the client disconnects, its call stays in the batch, so that Redis still counts the request.
    const decision = Effect.callback<Policy.Decision>((resume) => add(caller, limits, { verb, resume }))
    return Effect.withFiber((fiber) =>
      Context.getOrUndefined(fiber.context, Tracer.ParentSpan) === undefined
        ? decision
        : Effect.withSpan(decision, `RateLimiter.${verb}`)
    )
  }

  return RateLimiter.of({
    charge: call("charge"),
    peek: call("peek"),
    unban: (caller) =>
      Effect.callback<void>((resume) => {
        flush()
        const number = ++lastNumber
        const lift = (state: Policy.State, now: number): void => {
          keep(caller, number, state, Policy.unban(state, now))
          resume(Effect.void)
        }
        requests.send(
          caller,
          { verb: "unban" },
          ({ now, state }) => lift(state, now),
          () => lift(callers.get(caller), clock.currentTimeMillisUnsafe())
        )
      }),
    counting: Effect.sync(() => requests.isUp() ? "shared" : "fallback")
  })
})

export const layerWithoutClient = (options: RedisCircuitBreaker.BreakerOptions) =>
  Layer.effect(RateLimiter, make(options))

export const layer = (options: RedisOptions) => Layer.provide(layerWithoutClient(options), RedisClient.layer(options))
