/**
 * The rule of the limits (SPEC §8), without a store and without a clock.
 *
 * A caller has two fixed windows, of a minute and of a day, each opened by the first request charged to it. A request
 * is charged to both or to neither: what is refused costs nothing. A caller that goes on after refusals is banned: for
 * a minute, then for twice as long each time, up to an hour; an hour without a ban and it is a minute again.
 */
import type { Limits } from "../api/Plans.ts"

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
  readonly allowed: boolean
  /**
   * When the ban of the caller ends, if there is one: milliseconds since the Unix epoch. Until then its windows do not
   * matter.
   */
  readonly bannedUntil: number | undefined
  /** Whether it was this request that brought the ban. */
  readonly banBegan: boolean
  /** When it was decided: milliseconds since the Unix epoch. */
  readonly decidedAt: number
  readonly windows: readonly [minute: Window, day: Window]
}

/** Requests that were counted, and when the count ends. */
interface Count {
  readonly used: number
  readonly resetAt: number
}

/** A ban that was lifted is one of no length: it began, and ended, when it was lifted. */
interface Ban {
  readonly seconds: number
  readonly until: number
}

/** All that a store keeps of a caller; what has ended counts as not there. */
export interface State {
  readonly minute?: Count
  readonly day?: Count
  /** Refusals within a minute of the first of them. */
  readonly refusals?: Count
  /** The last ban. */
  readonly ban?: Ban
}

export const minuteWindow = { name: "minute", seconds: 60 } as const
export const dayWindow = { name: "day", seconds: 86_400 } as const
export const bans = {
  /** A client that waits as Retry-After says collects two refusals in a minute at most: it is never banned. */
  fewestRefusals: 3,
  shortest: 60,
  longest: 3_600,
  /** Seconds without a ban after which the next one is the shortest again. */
  memory: 3_600
} as const

/** What `decide` made of a request. */
export type Outcome = "admitted" | "refused" | "banned"

/** What becomes of a request at `now`, and what to keep. Callers that cannot be `bannable` are only refused. */
export const decide = (
  state: State,
  limits: Limits,
  now: number,
  bannable: boolean
): { readonly decision: Decision; readonly next: State } => {
  const { next, outcome } = charge(state, limits, now, bannable)
  return { decision: decisionOf(next, limits, now, outcome), next }
}

/** Charges a request at `now`. `decide` does the same, and adds what is to be said of it. */
export const charge = (
  state: State,
  limits: Limits,
  now: number,
  bannable: boolean
): { readonly outcome: Outcome; readonly next: State } => {
  if (isBanned(state, now)) return { outcome: "refused", next: state }
  const minute = current(state.minute, minuteWindow.seconds, now)
  const day = current(state.day, dayWindow.seconds, now)
  if (minute.used < limits.perMinute && day.used < limits.perDay) {
    return { outcome: "admitted", next: { ...state, minute: add(minute), day: add(day) } }
  }
  // A refused request leaves no trace in the windows: it does not open one either.
  return bannable ? refuse(state, limits, now) : { outcome: "refused", next: state }
}

/** What a caller has left at `now`, without a request. */
export const peek = (state: State, limits: Limits, now: number): Decision =>
  decisionOf(state, limits, now, charge(state, limits, now, false).outcome)

/** The state of a caller whose ban is lifted at `now`: nothing of it is held against the caller. */
export const unban = ({ day, minute }: State, now: number): State => ({
  ...minute && { minute },
  ...day && { day },
  ban: { seconds: 0, until: now }
})

/** A state as another clock tells it, which is so many milliseconds ahead. */
export const shift = ({ ban, day, minute, refusals }: State, ahead: number): State => {
  const later = ({ resetAt, used }: Count): Count => ({ used, resetAt: resetAt + ahead })
  return {
    ...minute && { minute: later(minute) },
    ...day && { day: later(day) },
    ...refusals && { refusals: later(refusals) },
    ...ban && { ban: { ...ban, until: ban.until + ahead } }
  }
}

/**
 * A state whose counts and ban end no later than their length after `now`: what a store returns may be of a clock that
 * was ahead.
 */
export const clamp = ({ ban, day, minute, refusals }: State, now: number): State => {
  const atMost = ({ resetAt, used }: Count, seconds: number): Count => ({
    used,
    resetAt: Math.min(resetAt, now + seconds * 1000)
  })
  return {
    ...minute && { minute: atMost(minute, minuteWindow.seconds) },
    ...day && { day: atMost(day, dayWindow.seconds) },
    ...refusals && { refusals: atMost(refusals, minuteWindow.seconds) },
    ...ban && { ban: { ...ban, until: Math.min(ban.until, now + ban.seconds * 1000) } }
  }
}

/** A decision with its times on a clock that is `ahead` milliseconds ahead. */
export const shiftDecision = (decision: Decision, ahead: number): Decision => {
  if (ahead === 0) return decision
  const [minute, day] = decision.windows
  return {
    ...decision,
    bannedUntil: decision.bannedUntil === undefined ? undefined : decision.bannedUntil + ahead,
    decidedAt: decision.decidedAt + ahead,
    windows: [
      { ...minute, resetAt: minute.resetAt + ahead },
      { ...day, resetAt: day.resetAt + ahead }
    ]
  }
}

/** When nothing of a state counts any more: milliseconds since the Unix epoch. */
export const endOf = ({ ban, day, minute, refusals }: State): number =>
  Math.max(
    minute?.resetAt ?? 0,
    day?.resetAt ?? 0,
    refusals?.resetAt ?? 0,
    ban === undefined ? 0 : ban.until + bans.memory * 1000
  )

/** The window that holds the caller back most: of exhausted ones the later reset, else the one with fewer remaining. */
export const mostRestrictive = ([minute, day]: Decision["windows"]): Window =>
  minute.remaining !== day.remaining
    ? minute.remaining < day.remaining ? minute : day
    : minute.resetAt > day.resetAt
    ? minute
    : day

const isBanned = (state: State, now: number): state is State & { readonly ban: Ban } =>
  state.ban !== undefined && now < state.ban.until

/** Counts a refusal; with as many in a minute as the limits allow requests, it is a ban. */
const refuse = (state: State, limits: Limits, now: number): { readonly outcome: Outcome; readonly next: State } => {
  const refusals = add(current(state.refusals, minuteWindow.seconds, now))
  if (refusals.used < Math.max(limits.perMinute, bans.fewestRefusals)) {
    return { outcome: "refused", next: { ...state, refusals } }
  }
  const { ban = { seconds: 0, until: 0 }, refusals: _, ...rest } = state
  const repeated = ban.seconds > 0 && now < ban.until + bans.memory * 1000
  const seconds = repeated ? Math.min(2 * ban.seconds, bans.longest) : bans.shortest
  return { outcome: "banned", next: { ...rest, ban: { seconds, until: now + seconds * 1000 } } }
}

const current = (count: Count | undefined, seconds: number, now: number): Count =>
  count !== undefined && now < count.resetAt ? count : { used: 0, resetAt: now + seconds * 1000 }

const add = ({ resetAt, used }: Count): Count => ({ used: used + 1, resetAt })

/** What is said of a request at `now` that left its caller in `state`. */
export const decisionOf = (state: State, limits: Limits, now: number, outcome: Outcome): Decision => {
  const left = (count: Count | undefined, seconds: number, limit: number) => {
    const { resetAt, used } = current(count, seconds, now)
    return { remaining: Math.max(0, limit - used), resetAt }
  }
  return {
    allowed: outcome === "admitted",
    bannedUntil: isBanned(state, now) ? state.ban.until : undefined,
    banBegan: outcome === "banned",
    decidedAt: now,
    windows: [
      { ...minuteWindow, limit: limits.perMinute, ...left(state.minute, minuteWindow.seconds, limits.perMinute) },
      { ...dayWindow, limit: limits.perDay, ...left(state.day, dayWindow.seconds, limits.perDay) }
    ]
  }
}
