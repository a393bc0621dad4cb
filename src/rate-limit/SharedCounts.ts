/**
 * Counts in Redis, for any number of processes. While it does not answer, this process decides by itself from what it
 * knew, on Redis's clock as far as it knew that; a caller goes back to Redis once what it used meanwhile is there.
 */
import { Clock, Effect, Metric } from "effect"
import type { Redis } from "effect/persistence"
import type { RateLimiter } from "../RateLimiter.ts"
import { redisUrl } from "../Settings.ts"
import * as Callers from "./Callers.ts"
import * as RedisLink from "./RedisLink.ts"
import * as RedisScripts from "./RedisScripts.ts"
import * as Rule from "./Rule.ts"

/** What is known of a caller. */
interface Known {
  readonly state: Rule.State
  /** What Redis last told of it: the difference is what Redis does not know. */
  readonly confirmed: Rule.State
  /** The link that told it; none if something was counted here since. */
  readonly link: RedisLink.Link | undefined
  /** The merge that Redis did not answer. */
  readonly sent?: RedisScripts.Merge | undefined
}

const ownDecisions = Metric.counter("rate_limit_fallback_decisions_total", {
  description: "Decisions made without Redis.",
  incremental: true
})

type Script = (redis: Redis.Redis["Service"]) => Effect.Effect<RedisScripts.Reply, Redis.RedisError>

export const make = Effect.gen(function*() {
  const url = yield* redisUrl
  const clock = yield* Clock.Clock
  /** For metrics that are counted in the middle of a decision. */
  const context = yield* Effect.context()
  /** Milliseconds that Redis's clock is ahead of ours. */
  let ahead = 0
  let knowsAhead = false
  const callers = yield* Callers.make<Known>(({ state }) => Rule.endOf(state) - ahead)

  const read = (reply: RedisScripts.Reply) => {
    const told = RedisScripts.read(reply)
    ahead = told.now - clock.currentTimeMillisUnsafe()
    return told
  }

  const isSettled = (known: Known | undefined, link: RedisLink.Link) => known === undefined || known.link === link
  const settling = new Map<Callers.Caller, Effect.Effect<void, RedisLink.LinkDown>>()

  /** Brings to Redis what it does not know of `caller`: once, whoever waits for it. */
  const settle = Effect.fnUntraced(function*(link: RedisLink.Link, caller: Callers.Caller) {
    const known = callers.get(caller)
    if (known === undefined || isSettled(known, link)) return
    let settled = settling.get(caller)
    if (settled === undefined) {
      settled = yield* Effect.cached(Effect.ensuring(bring(link, caller), Effect.sync(() => settling.delete(caller))))
      settling.set(caller, settled)
    }
    yield* settled
  }, Effect.uninterruptible)

  const bring = Effect.fnUntraced(function*(
    link: RedisLink.Link,
    caller: Callers.Caller
  ): Effect.fn.Return<void, RedisLink.LinkDown> {
    const known = callers.get(caller)
    if (known === undefined) return
    // One merge at a time: until Redis has answered it, it is not known whether what it tells is there.
    const { sent = { ...known, number: yield* RedisScripts.mergeNumber } } = known
    callers.set(caller, { ...known, sent })
    const told = read(yield* link.run((redis) => redis.eval(RedisScripts.merge)(caller, sent)))
    const { state = sent.state } = callers.get(caller) ?? {}
    if (state === sent.state) {
      callers.set(caller, { state: told.state, confirmed: told.state, link })
    } else {
      callers.set(caller, { state, confirmed: sent.state, link: undefined })
      yield* bring(link, caller)
    }
  })

  /** What `script` does to `caller`, and answers; or what `own` does, where Redis does not. */
  const ask = (
    caller: Callers.Caller,
    script: Script,
    own: (state: Rule.State, now: number) => { readonly outcome: Rule.Outcome; readonly next: Rule.State }
  ) => {
    const shared = (link: RedisLink.Link) =>
      Effect.map(link.run(script), (reply) => {
        const told = read(reply)
        // What was counted here meanwhile is not to be forgotten.
        if (isSettled(callers.get(caller), link)) {
          callers.set(caller, { state: told.state, confirmed: told.state, link })
        }
        return told
      })
    const alone = Effect.sync(() => {
      const now = clock.currentTimeMillisUnsafe() + ahead
      const { confirmed = {}, sent, state = {} } = callers.get(caller) ?? {}
      const { next, outcome } = own(state, now)
      if (next !== state) callers.set(caller, { state: next, confirmed, link: undefined, sent })
      return { now, outcome, state: next }
    })
    return Effect.suspend(() => {
      const link = links.current()
      if (link === undefined) return alone
      const asked = isSettled(callers.get(caller), link)
        ? shared(link)
        : Effect.andThen(settle(link, caller), shared(link))
      return Effect.catchTag(asked, "LinkDown", () => alone)
    })
  }

  const links = yield* RedisLink.make(url, {
    onConnect: ({ connectedAt }) => {
      const now = connectedAt - clock.currentTimeMillisUnsafe()
      // What was counted before Redis's clock was known was counted on ours.
      if (!knowsAhead) {
        callers.update(({ state }) => ({ state: Rule.shift(state, now), confirmed: {}, link: undefined }))
      }
      knowsAhead = true
      ahead = now
    },
    // Another process may be asked about a caller that only this one knows.
    onUp: (link) =>
      Effect.forEach(callers.all(), ([caller]) => Effect.ignore(settle(link, caller)), {
        concurrency: 16,
        discard: true
      })
  })

  const service: RateLimiter["Service"] = {
    charge: (caller, limits) =>
      Effect.map(
        ask(
          caller,
          (redis) => redis.eval(RedisScripts.charge)(caller, limits),
          (state, now) => {
            ownDecisions.updateUnsafe(1, context)
            return Rule.charge(state, limits, now, Callers.isKey(caller))
          }
        ),
        ({ now, outcome, state }) => Rule.decisionOf(state, limits, now, outcome)
      ),
    peek: (caller, limits) =>
      Effect.map(
        ask(
          caller,
          (redis) => redis.eval(RedisScripts.peek)(caller),
          (state) => ({ outcome: "refused", next: state })
        ),
        ({ now, state }) => Rule.peek(state, limits, now)
      ),
    unban: (caller) =>
      Effect.asVoid(ask(
        caller,
        (redis) => redis.eval(RedisScripts.unban)(caller),
        (state, now) => ({ outcome: "refused", next: Rule.unban(state, now) })
      )),
    counting: Effect.sync(() => links.current() === undefined ? "fallback" : "shared")
  }
  return service
})
