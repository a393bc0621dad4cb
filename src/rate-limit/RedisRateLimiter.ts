/**
 * Counts requests in Redis, shared by all processes. While Redis is down, each process counts in memory, starting from
 * the last counts that Redis returned. These local counts are never merged into Redis. Laws:
 *
 * - Each call gets exactly one decision, from the reply of Redis or from memory, or fails by the last law. It ends
 *   within the timeout of Redis (pauses of the process do not count).
 * - Each charge is in one command at most, even if the calling fiber was interrupted. So Redis counts a charge at most
 *   once, unless the Redis client repeats a command whose connection broke, as it does behind Sentinel.
 * - The charges of one key or address are sent in their order. Those of one command have the same limits.
 * - Counts in memory continue from the reply to the newest command, even if the reply to an older one comes later.
 * - If deciding a batch from a reply throws, it is decided again, from memory. If deciding it from memory throws, the
 *   calls of the batch fail with a defect. Other batches still get their decisions. If resuming a call throws, other
 *   calls still get theirs.
 */
import { Clock, Context, Effect, Exit, Layer, Metric, Tracer } from "effect"
import type * as Policy from "./Policy.ts"
import { type Call, type Caller, type Decide, makeLimiter, makeStates, RateLimiter } from "./RateLimiter.ts"
import * as RedisCircuitBreaker from "./RedisCircuitBreaker.ts"
import { RedisClient, type RedisOptions } from "./RedisClient.ts"
import type { Command } from "./RedisScript.ts"

/**
 * The maximum number of keys whose states are in memory for an outage. If the state of a key is evicted, the key starts
 * with new windows and no ban in this process at the next outage.
 */
const maxKeys = 100_000

/** Each batch is one run of the Lua script. Redis serves no other client during a run, so runs must be short. */
const maxCallsPerBatch = 128

/** A call that waits for its decision. */
interface Pending {
  /** Returns the state after the call, and a function that ends the call with its result. */
  readonly decide: (state: Policy.State, now: number) => readonly [next: Policy.State, end: () => void]
  readonly fail: (exit: Exit.Exit<never>) => void
}

/**
 * Charges and peeks of one key or address in one event-loop turn. If one key sends all requests, a run of the script
 * for each of them would cost 25 % more CPU (docs/decisions.md). `Batcher` is not used, because a batch must keep the
 * order of its charges and must not be interrupted: Redis may already have counted the requests.
 */
interface Batch {
  readonly limits: Policy.Limits
  readonly calls: Array<Pending>
  charges: number
}

/** A state in memory, and the number of the newest command whose reply it contains. */
interface NumberedState extends Policy.State {
  readonly number: number
}

const make = Effect.fnUntraced(function*(options: RedisCircuitBreaker.BreakerOptions) {
  const context = yield* Effect.context()
  const clock = yield* Clock.Clock
  const callers = yield* makeStates<NumberedState>({ maxKeys, none: { number: 0 } })
  const { localDecisions } = options.metrics
  // Prometheus' `increase` misses the first event of a counter that appears with the value 1.
  yield* Metric.update(localDecisions, 0)
  const requests = yield* RedisCircuitBreaker.make(options)

  let lastNumber = 0
  /**
   * Sends a command, and decides its calls one after the other, from the state in the reply or, if the command fails,
   * from the state in memory.
   */
  const send = (caller: Caller, command: Command, calls: ReadonlyArray<Pending>): void => {
    const number = ++lastNumber
    const decideAll = (before: Policy.State, numberBefore: number, now: number): void => {
      let state = before
      const ends = calls.map(({ decide }) => {
        const [next, end] = decide(state, now)
        state = next
        return end
      })
      // Memory may have a state from the reply to a newer command. Then keep that state.
      if (numberBefore >= callers.get(caller).number) callers.set(caller, { ...state, number: numberBefore })
      for (const end of ends) requests.attempt(end)
    }
    const decideLocally = (): void => {
      const state = callers.get(caller)
      decideAll(state, state.number, clock.currentTimeMillisUnsafe())
    }
    requests.send(
      caller,
      command,
      ({ now, state }) => decideAll(state, number, now),
      () => {
        if (command.verb === "charge") localDecisions.updateUnsafe(command.requests, context)
        if (requests.attempt(decideLocally)) return
        const failure = Exit.die(new Error("The rate limit could not be decided"))
        for (const { fail } of calls) requests.attempt(() => fail(failure))
      }
    )
  }

  let batches = new Map<Caller, Batch>()
  const flush = (): void => {
    const sent = batches
    batches = new Map()
    for (const [caller, { calls, charges, limits }] of sent) {
      send(caller, charges === 0 ? { verb: "peek" } : { verb: "charge", requests: charges, limits }, calls)
    }
  }
  const add = (caller: Caller, limits: Policy.Limits, charges: 0 | 1, call: Pending): void => {
    const open = batches.get(caller)
    if (open !== undefined) {
      const { perDay, perMinute } = open.limits
      if (perDay === limits.perDay && perMinute === limits.perMinute && open.calls.length < maxCallsPerBatch) {
        open.calls.push(call)
        open.charges += charges
        return
      }
      flush()
    }
    if (batches.size === 0) setImmediate(flush)
    batches.set(caller, { limits, calls: [call], charges })
  }

  const run = <A>(caller: Caller, call: Call, decide: Decide<A>): Effect.Effect<A> => {
    // If the calling fiber is interrupted, its charge stays in the batch, so that Redis still counts the request.
    const decided = Effect.callback<A>((resume) => {
      const pending: Pending = {
        decide: (state, now) => {
          const [result, next] = decide(state, now)
          return [next, () => resume(Exit.succeed(result))]
        },
        fail: resume
      }
      if (call.verb !== "unban") return add(caller, call.limits, call.verb === "charge" ? 1 : 0, pending)
      flush()
      send(caller, call, [pending])
    })
    return Effect.withFiber((fiber) =>
      call.verb !== "charge" || Context.getOrUndefined(fiber.context, Tracer.ParentSpan) === undefined
        ? decided
        : Effect.withSpan(decided, "RateLimiter.charge")
    )
  }
  return makeLimiter(run, Effect.sync(() => requests.isUp() ? "shared" : "fallback"))
})

export const layerWithoutClient = (options: RedisCircuitBreaker.BreakerOptions) =>
  Layer.effect(RateLimiter, make(options))

export const layer = (options: RedisOptions) => Layer.provide(layerWithoutClient(options), RedisClient.layer(options))
