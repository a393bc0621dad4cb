/**
 * Counts requests in Redis, shared by all processes. While Redis is down, each process counts in memory, starting from
 * the last counts that Redis returned. These local counts are never merged into Redis. Laws:
 *
 * - Each call gets exactly one decision, within the timeout of Redis, from the reply of Redis or from memory.
 * - Each charge is in one command at most, also if its caller was interrupted. So Redis never counts a charge twice.
 * - The charges of one key or address are decided in their order. Those of one command have the same limits.
 * - Counts in memory continue from the reply to the newest command, also if the reply to an older one comes later.
 * - If deciding a batch or resuming a call throws, other batches and calls still get their decisions.
 */
import { Clock, Context, Effect, Exit, Layer, Metric, Tracer } from "effect"
import * as Policy from "./Policy.ts"
import { type Caller, isKey, makeStates, RateLimiter } from "./RateLimiter.ts"
import * as RedisCircuitBreaker from "./RedisCircuitBreaker.ts"
import { RedisClient, type RedisOptions } from "./RedisClient.ts"

/**
 * The maximum number of keys whose states are in memory for an outage. If the state of a key is evicted, the key starts
 * with new windows in this process at the next outage.
 */
const maxKeys = 100_000

/** Each batch is one run of the Lua script. Redis serves no other client during a run, so runs must be short. */
const maxCallsPerBatch = 128

interface Call {
  readonly verb: "charge" | "peek"
  readonly resume: (decision: Exit.Exit<Policy.Decision>) => void
}

/**
 * The calls for one key or address in an event-loop turn. `Batcher` is not used, because a batch must keep the order of
 * its calls and must not be interrupted: Redis may already have counted the requests.
 */
interface Batch {
  readonly caller: Caller
  readonly limits: Policy.Limits
  readonly calls: Array<Call>
  /** The number of the batch's command. It ascends from command to command. */
  readonly number: number
}

/** A state in memory, and the number of the newest command whose reply it contains. */
interface NumberedState extends Policy.State {
  readonly number: number
}

const countCharges = ({ calls }: Batch): number => calls.filter(({ verb }) => verb === "charge").length

const make = Effect.fnUntraced(function*(options: RedisCircuitBreaker.BreakerOptions) {
  const context = yield* Effect.context()
  const clock = yield* Clock.Clock
  const callers = yield* makeStates<NumberedState>({ maxKeys, none: { number: 0 } })
  const localDecisions = Metric.counter(`${options.metricPrefix}rate_limit_fallback_decisions_total`, {
    description: "Rate limit decisions made without Redis.",
    incremental: true
  })
  // Prometheus' `increase` misses the first event of a counter that appears with the value 1.
  yield* Metric.update(localDecisions, 0)
  const requests = yield* RedisCircuitBreaker.make(options)

  let lastNumber = 0
  /** Keeps the state that a reply contains, unless memory has one from the reply to a newer command. */
  const keepReply = (caller: Caller, number: number, state: Policy.State): void => {
    if (number >= callers.get(caller).number) callers.set(caller, { ...state, number })
  }
  const keepLocally = (caller: Caller, state: Policy.State): void => {
    callers.set(caller, { ...state, number: callers.get(caller).number })
  }

  const decide = (
    { calls, caller, limits }: Batch,
    state: Policy.State,
    now: number,
    keep: (next: Policy.State) => void
  ): void => {
    let next = state
    const decisions = calls.map(({ verb }) => {
      if (verb === "peek") return Policy.peek(next, limits, now)
      const charged = Policy.decide(next, limits, now, isKey(caller))
      next = charged.next
      return charged.decision
    })
    keep(next)
    for (const [index, { resume }] of calls.entries()) {
      const decision = decisions[index]
      if (decision !== undefined) requests.attempt(() => resume(Exit.succeed(decision)))
    }
  }
  const decideLocally = (batch: Batch): void => {
    localDecisions.updateUnsafe(countCharges(batch), context)
    const { caller } = batch
    const [state, now] = [callers.get(caller), clock.currentTimeMillisUnsafe()]
    if (requests.attempt(() => decide(batch, state, now, (next) => keepLocally(caller, next)))) return
    const failure = Exit.die(new Error("The rate limit could not be decided"))
    for (const { resume } of batch.calls) requests.attempt(() => resume(failure))
  }
  const send = (batch: Batch): void => {
    const { caller, limits, number } = batch
    const charges = countCharges(batch)
    requests.send(
      caller,
      charges === 0 ? { verb: "peek" } : { verb: "charge", requests: charges, limits },
      ({ now, state }) => decide(batch, state, now, (next) => keepReply(caller, number, next)),
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
        requests.send(
          caller,
          { verb: "unban" },
          ({ now, state }) => {
            keepReply(caller, number, Policy.unban(state, now))
            resume(Effect.void)
          },
          () => {
            keepLocally(caller, Policy.unban(callers.get(caller), clock.currentTimeMillisUnsafe()))
            resume(Effect.void)
          }
        )
      }),
    counting: Effect.sync(() => requests.isUp() ? "shared" : "fallback")
  })
})

export const layerWithoutClient = (options: RedisCircuitBreaker.BreakerOptions) =>
  Layer.effect(RateLimiter, make(options))

export const layer = (options: RedisOptions) => Layer.provide(layerWithoutClient(options), RedisClient.layer(options))
