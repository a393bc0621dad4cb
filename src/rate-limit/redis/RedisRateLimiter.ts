/**
 * The rate limiter that counts in Redis, for any number of processes, on a time that they share (`RedisScripts.ts`).
 * While Redis does not reply, this process decides from its own states, on its estimate of that time. It asks Redis
 * about a caller again once its local counts are merged there.
 */
import { Clock, Effect, Metric, Predicate, Schedule } from "effect"
import type { Redis } from "effect/persistence"
import { redisUrl } from "../../config/Settings.ts"
import * as CallerStates from "../CallerStates.ts"
import type { Limiter } from "../Limiter.ts"
import * as Policy from "../Policy.ts"
import * as SteadyClock from "../SteadyClock.ts"
import * as RedisConnection from "./RedisConnection.ts"
import * as RedisScripts from "./RedisScripts.ts"

/** The local knowledge about a caller. */
interface Known {
  readonly state: Policy.State
  /** The state that Redis last confirmed. The difference to `state` is unknown to Redis. */
  readonly confirmed: Policy.State
  /** The connection that confirmed it, or `undefined` if this process has counted on its own since. */
  readonly link: RedisConnection.RedisConnection | undefined
  /** The last merge to which Redis has not replied. */
  readonly sent?: RedisScripts.Merge | undefined
}

const ownDecisions = Metric.counter("rate_limit_fallback_decisions_total", {
  description: "Decisions made without Redis.",
  incremental: true
})

type Script = (
  redis: Redis.Redis["Service"],
  time: RedisScripts.SharedTime
) => Effect.Effect<RedisScripts.Reply | null, Redis.RedisError>

/**
 * The interval at which a process compares its estimate with the shared time, so that clock drift never looks like a
 * step.
 */
const agreementInterval = "500 millis"

export const make = Effect.gen(function*() {
  const url = yield* redisUrl
  /** This process's estimate of the shared time. Until its first connection it is the wall clock's time. */
  const steady = SteadyClock.make(yield* Clock.Clock)
  /** Milliseconds by which the shared time is ahead of Redis's clock, as last read. */
  let correction = 0
  let isKnown = false
  /** The context for metrics that are recorded within a decision. */
  const context = yield* Effect.context()
  const callers = yield* CallerStates.make<Known>(({ state }) => Policy.endOf(state), steady.now)

  /**
   * Milliseconds by which `now`, the reply to a script sent at `sentAt`, lies outside the time between sending and
   * receiving.
   */
  const deviation = (now: number, sentAt: number): number => {
    const received = steady.now()
    return now > received ? now - received : Math.min(0, now - steady.at(sentAt))
  }

  const agreeNow = Effect.fnUntraced(function*(link: RedisConnection.RedisConnection) {
    const sentAt = steady.monotonic()
    const [redisTime, agreed, isConfirmed] = yield* link.run((redis) =>
      redis.eval(RedisScripts.compare)(isKnown ? steady.at(sentAt) : undefined, correction)
    )
    correction = agreed
    if (!isKnown) {
      const ahead = redisTime + agreed - steady.now()
      // These states were counted on this process's own clock.
      callers.update(({ state }) => ({ state: Policy.shift(state, ahead), confirmed: {}, link: undefined }))
      steady.adjust(ahead)
      isKnown = true
      return
    }
    const stepped = deviation(redisTime + agreed, sentAt)
    if (Math.abs(stepped) >= SteadyClock.minStep && isConfirmed === 0) {
      correction = yield* link.run((redis) => redis.eval(RedisScripts.correct)(agreed, agreed - stepped))
      const seconds = Math.round(stepped / 1000)
      yield* Effect.logWarning(`Redis's clock stepped by ${seconds} seconds. Windows and bans keep their length.`)
    }
    // Delays of the second script do not matter: the deviation comes from the first.
    steady.adjust(deviation(redisTime + correction, sentAt))
  })

  let agreeing: Effect.Effect<void, RedisConnection.RedisDown> | undefined
  /** Agrees with the other processes on the shared time, once for all requests that wait for it. */
  const agree = Effect.fnUntraced(function*(link: RedisConnection.RedisConnection) {
    agreeing ??= yield* Effect.cached(Effect.ensuring(
      agreeNow(link),
      Effect.sync(() => {
        agreeing = undefined
      })
    ))
    yield* agreeing
  }, Effect.uninterruptible)

  const runOnce = (link: RedisConnection.RedisConnection, script: Script) =>
    Effect.suspend(() => {
      const sentAt = steady.monotonic()
      const time = { estimate: steady.at(sentAt), correction }
      return Effect.map(link.run((redis) => script(redis, time)), (reply) => {
        if (reply === null) return undefined
        const told = RedisScripts.read(reply)
        // After another agreement the reply is on an outdated time.
        if (time.correction === correction) steady.adjust(deviation(told.now, sentAt))
        return told
      })
    })

  /** Runs a script, and runs it again after an agreement if the shared time was wrong. */
  const run = (link: RedisConnection.RedisConnection, script: Script) =>
    runOnce(link, script).pipe(
      Effect.filterOrElse(Predicate.isNotUndefined, () => Effect.andThen(agree(link), runOnce(link, script))),
      Effect.filterOrFail(
        Predicate.isNotUndefined,
        () => new RedisConnection.RedisDown({ cause: new Error("The processes do not agree on the time") })
      )
    )

  const isMerged = (known: Known | undefined, link: RedisConnection.RedisConnection) =>
    known === undefined || known.link === link
  const settling = new Map<CallerStates.Caller, Effect.Effect<void, RedisConnection.RedisDown>>()

  /** Merges the local counts of `caller` into Redis, once for all requests that wait for it. */
  const mergeLocalCounts = Effect.fnUntraced(
    function*(link: RedisConnection.RedisConnection, caller: CallerStates.Caller) {
      const known = callers.get(caller)
      if (known === undefined || isMerged(known, link)) return
      let settled = settling.get(caller)
      if (settled === undefined) {
        settled = yield* Effect.cached(Effect.ensuring(bring(link, caller), Effect.sync(() => settling.delete(caller))))
        settling.set(caller, settled)
      }
      yield* settled
    },
    Effect.uninterruptible
  )

  const bring = Effect.fnUntraced(function*(
    link: RedisConnection.RedisConnection,
    caller: CallerStates.Caller
  ): Effect.fn.Return<void, RedisConnection.RedisDown> {
    const known = callers.get(caller)
    if (known === undefined) return
    // One merge at a time: until Redis replies, it is unknown whether its states contain the merge.
    const { sent = { ...known, number: yield* RedisScripts.mergeNumber } } = known
    callers.set(caller, { ...known, sent })
    const told = yield* run(link, (redis, time) => redis.eval(RedisScripts.merge)(caller, sent, time))
    const { state = sent.state } = callers.get(caller) ?? {}
    if (state === sent.state) {
      callers.set(caller, { state: told.state, confirmed: told.state, link })
    } else {
      callers.set(caller, { state, confirmed: sent.state, link: undefined })
      yield* bring(link, caller)
    }
  })

  /** Runs `script` for `caller` and returns its decision, or the decision of `own` while Redis does not reply. */
  const ask = (
    caller: CallerStates.Caller,
    script: Script,
    own: (state: Policy.State, now: number) => { readonly outcome: Policy.Outcome; readonly next: Policy.State }
  ) => {
    const shared = (link: RedisConnection.RedisConnection) =>
      Effect.map(run(link, script), (told) => {
        // Local counts of this moment must not be overwritten.
        if (isMerged(callers.get(caller), link)) {
          callers.set(caller, { state: told.state, confirmed: told.state, link })
        }
        return told
      })
    const alone = Effect.sync(() => {
      const now = steady.now()
      const { confirmed = {}, sent, state = {} } = callers.get(caller) ?? {}
      const { next, outcome } = own(state, now)
      if (next !== state) callers.set(caller, { state: next, confirmed, link: undefined, sent })
      return { now, outcome, state: next }
    })
    return Effect.suspend(() => {
      const link = links.current()
      if (link === undefined) return alone
      const asked = isMerged(callers.get(caller), link)
        ? shared(link)
        : Effect.andThen(mergeLocalCounts(link, caller), shared(link))
      return Effect.catchTag(asked, "LinkDown", () => alone)
    })
  }

  const links = yield* RedisConnection.make(url, {
    onConnect: agree,
    onUp: (link) =>
      Effect.andThen(
        // Another process may be asked about a caller that only this process knows.
        Effect.forEach(callers.all(), ([caller]) => Effect.ignore(mergeLocalCounts(link, caller)), {
          concurrency: 16,
          discard: true
        }),
        Effect.repeat(Effect.ignore(agree(link)), Schedule.spaced(agreementInterval))
      )
  })

  const show = (decision: Policy.Decision) => Policy.shiftDecision(decision, steady.wallOffset())

  const service: Limiter = {
    charge: (caller, limits) =>
      Effect.map(
        ask(
          caller,
          (redis, time) => redis.eval(RedisScripts.charge)(caller, limits, time),
          (state, now) => {
            ownDecisions.updateUnsafe(1, context)
            return Policy.charge(state, limits, now, CallerStates.isKey(caller))
          }
        ),
        ({ now, outcome, state }) => show(Policy.decisionOf(state, limits, now, outcome))
      ),
    peek: (caller, limits) =>
      Effect.map(
        ask(
          caller,
          (redis, time) => redis.eval(RedisScripts.peek)(caller, time),
          (state) => ({ outcome: "refused", next: state })
        ),
        ({ now, state }) => show(Policy.peek(state, limits, now))
      ),
    unban: (caller) =>
      Effect.asVoid(ask(
        caller,
        (redis, time) => redis.eval(RedisScripts.unban)(caller, time),
        (state, now) => ({ outcome: "refused", next: Policy.unban(state, now) })
      )),
    counting: Effect.sync(() => links.current() === undefined ? "fallback" : "shared")
  }
  return service
})
