/**
 * The rate-limit policy (SPEC §8), without a store and without a clock.
 *
 * A caller has two fixed windows, a minute and a day, each opened by the first request charged to it. A request is
 * charged to both windows or to neither: a rejected request is not charged. A key that keeps sending after rejections
 * is banned: for a minute, then for twice as long each time, up to an hour. After an hour without a ban, the next ban
 * lasts a minute again.
 */
import type { Limits } from "../api/Plans.ts"

/** One window of a caller, after the decided request. */
export interface Window {
  readonly name: "minute" | "day"
  /** The maximum of requests in the window. */
  readonly limit: number
  /** The length of the window in seconds. */
  readonly seconds: number
  readonly remaining: number
  /** The end of the window, in milliseconds since the Unix epoch. */
  readonly resetAt: number
}

export interface Decision {
  readonly allowed: boolean
  /** The end of the caller's ban, in milliseconds since the Unix epoch. The windows do not matter until then. */
  readonly bannedUntil: number | undefined
  /** Whether this request began the ban. */
  readonly banBegan: boolean
  /** The time of the decision, in milliseconds since the Unix epoch. */
  readonly decidedAt: number
  readonly windows: readonly [minute: Window, day: Window]
}

interface Count {
  readonly used: number
  readonly resetAt: number
}

/** A ban. A lifted ban has no length: it begins and ends at the time of its lifting. */
interface Ban {
  readonly seconds: number
  readonly until: number
}

/** The state of a caller. An ended count or ban is treated as absent. */
export interface State {
  readonly minute?: Count | undefined
  readonly day?: Count | undefined
  /** Those within a minute of the first one. */
  readonly rejections?: Count | undefined
  readonly ban?: Ban | undefined
}

export const minuteWindow = { name: "minute", seconds: 60 } as const
export const dayWindow = { name: "day", seconds: 86_400 } as const
export const bans = {
  /**
   * The minimum of rejections for a ban. A client that honours `Retry-After` gets at most two a minute and is never
   * banned.
   */
  minRejections: 3,
  shortest: 60,
  longest: 3_600,
  /** Seconds without a ban after which the next ban has the shortest length again. */
  memory: 3_600
} as const

interface Outcome extends Pick<Decision, "allowed" | "banBegan"> {
  readonly next: State
}

/** Decides on a request at `now`, and returns the state to store. A caller that is not `bannable` is never banned. */
export const decide = (
  state: State,
  limits: Limits,
  now: number,
  bannable: boolean
): { readonly decision: Decision; readonly next: State } => {
  const outcome = outcomeOf(state, limits, now, bannable)
  return { decision: decisionOf(outcome, limits, now), next: outcome.next }
}

const outcomeOf = (stored: State, limits: Limits, now: number, bannable: boolean): Outcome => {
  const state = clamp(stored, now)
  if (isBanned(state, now)) return rejected(state)
  const minute = current(state.minute, minuteWindow.seconds, now)
  const day = current(state.day, dayWindow.seconds, now)
  if (minute.used < limits.perMinute && day.used < limits.perDay) {
    return { allowed: true, banBegan: false, next: { ...state, minute: add(minute), day: add(day) } }
  }
  // A rejected request changes no window and opens none.
  return bannable ? reject(state, limits, now) : rejected(state)
}

/** Returns what a caller has left at `now`, and whether its next request is allowed. */
export const peek = (state: State, limits: Limits, now: number): Decision => {
  const { allowed } = outcomeOf(state, limits, now, false)
  return decisionOf({ allowed, banBegan: false, next: clamp(state, now) }, limits, now)
}

/** Returns the state of a caller whose ban is lifted at `now`, without its rejections. */
export const unban = ({ day, minute }: State, now: number): State => ({ minute, day, ban: { seconds: 0, until: now } })

/**
 * Limits the ends of counts and bans to their length after `now`. So a step back of a clock, or another clock that is
 * ahead, holds a caller for one window or ban at most. Every decision begins with it.
 */
export const clamp = (state: State, now: number): State => {
  const atMost = (count: Count | undefined, seconds: number): Count | undefined => {
    const latest = now + seconds * 1000
    return count === undefined || count.resetAt <= latest ? count : { used: count.used, resetAt: latest }
  }
  const minute = atMost(state.minute, minuteWindow.seconds)
  const day = atMost(state.day, dayWindow.seconds)
  const rejections = atMost(state.rejections, minuteWindow.seconds)
  const until = Math.min(state.ban?.until ?? 0, now + (state.ban?.seconds ?? 0) * 1000)
  if (
    minute === state.minute && day === state.day && rejections === state.rejections && until === (state.ban?.until ?? 0)
  ) {
    return state
  }
  return { minute, day, rejections, ban: state.ban && { seconds: state.ban.seconds, until } }
}

/** Returns the time after which the state is empty, in milliseconds since the Unix epoch. */
export const endOf = ({ ban, day, minute, rejections }: State): number =>
  Math.max(
    minute?.resetAt ?? 0,
    day?.resetAt ?? 0,
    rejections?.resetAt ?? 0,
    ban === undefined ? 0 : ban.until + bans.memory * 1000
  )

/**
 * Returns the most restrictive window: of exhausted windows the one with the later reset, else the one with fewer
 * requests remaining.
 */
export const mostRestrictive = ([minute, day]: Decision["windows"]): Window =>
  minute.remaining !== day.remaining
    ? minute.remaining < day.remaining ? minute : day
    : minute.resetAt > day.resetAt
    ? minute
    : day

const isBanned = (state: State, now: number): state is State & { readonly ban: Ban } =>
  state.ban !== undefined && now < state.ban.until

const rejected = (next: State): Outcome => ({ allowed: false, banBegan: false, next })

/** Counts a rejection. As many rejections in a minute as the limit allows requests begin a ban. */
const reject = (state: State, limits: Limits, now: number): Outcome => {
  const rejections = add(current(state.rejections, minuteWindow.seconds, now))
  if (rejections.used < Math.max(limits.perMinute, bans.minRejections)) {
    return rejected({ ...state, rejections })
  }
  const { ban = { seconds: 0, until: 0 }, rejections: _, ...rest } = state
  const repeated = ban.seconds > 0 && now < ban.until + bans.memory * 1000
  const seconds = repeated ? Math.min(2 * ban.seconds, bans.longest) : bans.shortest
  return { allowed: false, banBegan: true, next: { ...rest, ban: { seconds, until: now + seconds * 1000 } } }
}

const current = (count: Count | undefined, seconds: number, now: number): Count =>
  count !== undefined && now < count.resetAt ? count : { used: 0, resetAt: now + seconds * 1000 }

const add = ({ resetAt, used }: Count): Count => ({ used: used + 1, resetAt })

const decisionOf = ({ allowed, banBegan, next: state }: Outcome, limits: Limits, now: number): Decision => {
  const left = (count: Count | undefined, seconds: number, limit: number) => {
    const { resetAt, used } = current(count, seconds, now)
    return { remaining: Math.max(0, limit - used), resetAt }
  }
  return {
    allowed,
    bannedUntil: isBanned(state, now) ? state.ban.until : undefined,
    banBegan,
    decidedAt: now,
    windows: [
      { ...minuteWindow, limit: limits.perMinute, ...left(state.minute, minuteWindow.seconds, limits.perMinute) },
      { ...dayWindow, limit: limits.perDay, ...left(state.day, dayWindow.seconds, limits.perDay) }
    ]
  }
}
