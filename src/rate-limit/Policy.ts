/**
 * The rate-limit policy (SPEC §8) as pure functions. All times are in epoch milliseconds.
 *
 * A caller has two fixed windows, a minute and a day. Each window opens with the first request that it counts. Both
 * windows count allowed requests, and neither counts rejected ones. A key with too many rejections within a minute is
 * banned for a minute. Each further ban lasts twice as long as the one before it, up to an hour. An hour after the end
 * of the last ban, bans start at a minute again. If an operator lifts a ban, it ends then, and a ban within the next
 * hour still lasts twice as long.
 */
import { Schema } from "effect"

/** How many requests a caller may send. */
export interface Limits {
  readonly perMinute: number
  readonly perDay: number
}

/** A window of a caller, and what is left of its limit. */
export interface Window {
  /** The name of the window. */
  readonly name: "minute" | "day"
  /** Requests per window. */
  readonly limit: number
  /** The length of the window, in seconds. */
  readonly seconds: number
  /** The requests that remain in the window. */
  readonly remaining: number
  /** When the window ends, or would end if it opened now, in epoch milliseconds. */
  readonly resetAt: number
}

/** Whether a request is allowed. Times are in epoch milliseconds. */
export interface Decision {
  /** Whether the request is within the limits, and its caller not banned. */
  readonly allowed: boolean
  /** The end of the ban, if the caller is banned. */
  readonly bannedUntil: number | undefined
  /** Whether this request began the ban. */
  readonly banBegan: boolean
  /** When the decision was made. */
  readonly decidedAt: number
  /** The windows after this request. A peek counts nothing, so its windows are those before the request. */
  readonly windows: readonly [minute: Window, day: Window]
}

const Count = Schema.Struct({ used: Schema.Int, resetAt: Schema.Int })
type Count = typeof Count.Type
const Ban = Schema.Struct({ seconds: Schema.Int, until: Schema.Int })
type Ban = typeof Ban.Type

/**
 * The counts and the last ban of a caller. Expired counts are ignored. The last ban stays, because the length of the
 * next ban depends on it.
 */
export const State = Schema.Struct({
  minute: Schema.optional(Count),
  day: Schema.optional(Count),
  rejections: Schema.optional(Count),
  ban: Schema.optional(Ban)
})
export type State = typeof State.Type

/** The state of a caller without requests. */
export const noCounts: State = {}

export const minuteWindow = { name: "minute", seconds: 60 } as const
export const dayWindow = { name: "day", seconds: 86_400 } as const
export const bans = {
  /**
   * A ban begins when the rejections within a minute reach the key's limit per minute, but not before this number. A
   * client that shares its key with no other, obeys `Retry-After` and sends one request at a time gets at most two
   * rejections a minute, or three when its day window ends. So its key is never banned, unless its limit is at most
   * three requests a minute and its day window ends in that minute.
   */
  minRejections: 3,
  minSeconds: 60,
  maxSeconds: 3_600,
  backoffResetSeconds: 3_600
} as const

interface Outcome extends Pick<Decision, "allowed" | "banBegan"> {
  readonly next: State
}

export const decide = (state: State, limits: Limits, now: number, bannable: boolean) => {
  const outcome = outcomeOf(state, limits, now, bannable)
  return { decision: decisionOf(outcome, limits, now), next: outcome.next }
}

const outcomeOf = (stored: State, limits: Limits, now: number, bannable: boolean): Outcome => {
  const state = clamp(stored, now)
  if (isBanned(state, now)) return rejectionIn(state)
  const minute = current(state.minute, minuteWindow.seconds, now)
  const day = current(state.day, dayWindow.seconds, now)
  if (minute.used < limits.perMinute && day.used < limits.perDay) {
    return { allowed: true, banBegan: false, next: { ...state, minute: add(minute), day: add(day) } }
  }
  return bannable ? countRejection(state, limits, now) : rejectionIn(state)
}

export const peek = (state: State, limits: Limits, now: number): Decision => {
  const { allowed } = outcomeOf(state, limits, now, false)
  return decisionOf({ allowed, banBegan: false, next: clamp(state, now) }, limits, now)
}

/**
 * Ends the ban and clears the rejections that count towards the next ban. Keeps the length of the last ban, so that a
 * ban within the next hour lasts twice as long, up to an hour.
 */
export const unban = ({ ban, day, minute }: State, now: number): State => ({
  minute,
  day,
  ban: ban && { seconds: ban.seconds, until: Math.min(ban.until, now) }
})

/** Corrects the state after the clock was set back: no window or ban may last longer than its full length from now. */
export const clamp = (state: State, now: number): State => {
  const atMost = (count: Count | undefined, seconds: number): Count | undefined => {
    const latest = now + seconds * 1000
    return count === undefined || count.resetAt <= latest ? count : { used: count.used, resetAt: latest }
  }
  const minute = atMost(state.minute, minuteWindow.seconds)
  const day = atMost(state.day, dayWindow.seconds)
  const rejections = atMost(state.rejections, minuteWindow.seconds)
  const ban = state.ban && state.ban.until > now + state.ban.seconds * 1000
    ? { ...state.ban, until: now + state.ban.seconds * 1000 }
    : state.ban
  const isSame = minute === state.minute && day === state.day && rejections === state.rejections && ban === state.ban
  return isSame ? state : { minute, day, rejections, ban }
}

/** Returns the time from which the state no longer influences decisions. */
export const endOf = ({ ban, day, minute, rejections }: State): number => {
  const backoffEnd = ban === undefined ? 0 : ban.until + bans.backoffResetSeconds * 1000
  return Math.max(minute?.resetAt ?? 0, day?.resetAt ?? 0, rejections?.resetAt ?? 0, backoffEnd)
}

const isBanned = (state: State, now: number): state is State & { readonly ban: Ban } =>
  state.ban !== undefined && now < state.ban.until

const rejectionIn = (next: State): Outcome => ({ allowed: false, banBegan: false, next })

/** Counts a rejected request of an API key, and begins a ban if there are too many (`bans`). */
const countRejection = (state: State, limits: Limits, now: number): Outcome => {
  const rejections = add(current(state.rejections, minuteWindow.seconds, now))
  if (rejections.used < Math.max(limits.perMinute, bans.minRejections)) return rejectionIn({ ...state, rejections })
  const { ban = { seconds: 0, until: 0 }, rejections: _, ...rest } = state
  const repeated = ban.seconds > 0 && now < ban.until + bans.backoffResetSeconds * 1000
  const seconds = repeated ? Math.min(2 * ban.seconds, bans.maxSeconds) : bans.minSeconds
  return { allowed: false, banBegan: true, next: { ...rest, ban: { seconds, until: now + seconds * 1000 } } }
}

const current = (count: Count | undefined, seconds: number, now: number): Count =>
  count !== undefined && now < count.resetAt ? count : { used: 0, resetAt: now + seconds * 1000 }

const add = ({ resetAt, used }: Count): Count => ({ used: used + 1, resetAt })

const decisionOf = ({ allowed, banBegan, next: state }: Outcome, limits: Limits, now: number): Decision => {
  const windowOf = (kind: typeof minuteWindow | typeof dayWindow, count: Count | undefined, limit: number): Window => {
    const { resetAt, used } = current(count, kind.seconds, now)
    return { ...kind, limit, remaining: Math.max(0, limit - used), resetAt }
  }
  return {
    allowed,
    bannedUntil: isBanned(state, now) ? state.ban.until : undefined,
    banBegan,
    decidedAt: now,
    windows: [windowOf(minuteWindow, state.minute, limits.perMinute), windowOf(dayWindow, state.day, limits.perDay)]
  }
}
