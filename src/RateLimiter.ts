/**
 * How many requests a caller may make (SPEC §8).
 *
 * A caller has two fixed windows, of a minute and of a day, each opened by the first request charged to it. A request
 * is charged to both or to neither: what is refused costs nothing.
 */
import { Clock, Context, Effect, Layer } from "effect"
import type { Limits } from "./api/Plans.ts"

/** What a caller has left of one window, after the request that was decided. */
export interface Window {
  readonly name: "minute" | "day"
  /** Requests that the window admits. */
  readonly limit: number
  /** Seconds that the window lasts. */
  readonly seconds: number
  /** Requests that the window still admits. */
  readonly remaining: number
  /** When the window ends: milliseconds since the Unix epoch. */
  readonly resetAt: number
}

/** What was decided of a request, and all that its answer says of it. */
export interface Decision {
  readonly admitted: boolean
  /** When it was decided: milliseconds since the Unix epoch. */
  readonly decidedAt: number
  readonly windows: readonly [minute: Window, day: Window]
}

/** Whom a request is charged to: an API key, or a client's address. */
export type Caller = `key:${string}` | `address:${string}`

export class RateLimiter extends Context.Service<RateLimiter, {
  /** Charges one request to `caller`, if its limits admit it. */
  charge(caller: Caller, limits: Limits): Effect.Effect<Decision>

  /** What `caller` has left, without a charge. */
  peek(caller: Caller, limits: Limits): Effect.Effect<Decision>
}>()("petstore/RateLimiter") {
  /** Counts in this process's memory. */
  static readonly layerMemory = Layer.sync(RateLimiter, () => {
    const keys = new Map<Caller, Counts>()
    const addresses = new Map<Caller, Counts>()
    const countsOf = (caller: Caller) => caller.startsWith("key:") ? keys : addresses
    return RateLimiter.of({
      peek: (caller, limits) =>
        Effect.map(Clock.currentTimeMillis, (now) => peek(countsOf(caller).get(caller), limits, now)),
      charge: (caller, limits) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          const counts = countsOf(caller)
          const { decision, next } = decide(counts.get(caller), limits, now)
          // Insertion order is the order of last use, so that the first is the one to forget.
          counts.delete(caller)
          if (next !== undefined) counts.set(caller, next)
          if (addresses.size > addressesKept) addresses.delete(addresses.keys().next().value ?? caller)
          return decision
        })
    })
  })
}

/** Addresses are anybody's to make up: only so many are remembered. Keys are as many as were issued. */
const addressesKept = 100_000

/** A window that is open: how many requests it admitted, and when it ends. */
interface Count {
  readonly used: number
  readonly resetAt: number
}

/** The state of a caller: all that a store keeps. */
export interface Counts {
  readonly minute: Count
  readonly day: Count
}

const minuteLength = { name: "minute", seconds: 60 } as const
const dayLength = { name: "day", seconds: 86_400 } as const

/** The rule, without a store: what becomes of a request at `now`, given what its caller used before. */
export const decide = (
  counts: Counts | undefined,
  limits: Limits,
  now: number
): { readonly decision: Decision; readonly next: Counts | undefined } => {
  const current = currentCounts(counts, now)
  const admitted = current.minute.used < limits.perMinute && current.day.used < limits.perDay
  // A refused request leaves no trace: it does not open a window either.
  if (!admitted) return { decision: decision(false, current, limits, now), next: counts }
  const charged = { minute: charge(current.minute), day: charge(current.day) }
  return { decision: decision(true, charged, limits, now), next: charged }
}

/** What a caller has left at `now`, and whether a request would be admitted. */
const peek = (counts: Counts | undefined, limits: Limits, now: number): Decision =>
  decision(decide(counts, limits, now).decision.admitted, currentCounts(counts, now), limits, now)

/** The windows that are open at `now`, or would be opened. */
const currentCounts = (counts: Counts | undefined, now: number): Counts => {
  const open = (count: Count | undefined, seconds: number): Count =>
    count !== undefined && now < count.resetAt ? count : { used: 0, resetAt: now + seconds * 1000 }
  return { minute: open(counts?.minute, minuteLength.seconds), day: open(counts?.day, dayLength.seconds) }
}

const decision = (admitted: boolean, counts: Counts, limits: Limits, now: number): Decision => ({
  admitted,
  decidedAt: now,
  windows: [
    { ...minuteLength, limit: limits.perMinute, ...left(counts.minute, limits.perMinute) },
    { ...dayLength, limit: limits.perDay, ...left(counts.day, limits.perDay) }
  ]
})

const charge = (count: Count): Count => ({ used: count.used + 1, resetAt: count.resetAt })

const left = (count: Count, limit: number) => ({ remaining: Math.max(0, limit - count.used), resetAt: count.resetAt })

/** The window that holds the caller back most: of exhausted ones the later reset, else the one with fewer remaining. */
export const tightest = ({ windows: [minute, day] }: Decision): Window =>
  minute.remaining !== day.remaining
    ? minute.remaining < day.remaining ? minute : day
    : minute.resetAt > day.resetAt
    ? minute
    : day
