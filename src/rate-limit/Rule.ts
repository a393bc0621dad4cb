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
  /** When the window, or the ban, ends: milliseconds since the Unix epoch. */
  readonly resetAt: number
}

/** What was decided of a request, and all that its answer says of it. */
export interface Decision {
  readonly admitted: boolean
  /** Whether the caller is banned. Nothing remains of its windows until the ban's end. */
  readonly banned: boolean
  /** When it was decided: milliseconds since the Unix epoch. */
  readonly decidedAt: number
  readonly windows: readonly [minute: Window, day: Window]
}

/** Requests that were counted, and when the count ends. */
interface Count {
  readonly used: number
  readonly resetAt: number
}

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

const minuteWindow = { name: "minute", seconds: 60 } as const
const dayWindow = { name: "day", seconds: 86_400 } as const
/** A client that waits as Retry-After says collects two refusals in a minute at most: it is never banned. */
const fewestRefusals = 3
const shortestBan = 60
const longestBan = 3_600
/** An hour without a ban, and the next one is the shortest again. */
const banMemory = 3_600

/** What becomes of a request at `now`, and what to keep. Callers that cannot be `bannable` are only refused. */
export const decide = (
  state: State,
  limits: Limits,
  now: number,
  bannable: boolean
): { readonly decision: Decision; readonly next: State } => {
  if (isBanned(state, now)) return { decision: show(state, limits, now, false), next: state }
  const counts = {
    minute: current(state.minute, minuteWindow.seconds, now),
    day: current(state.day, dayWindow.seconds, now)
  }
  if (counts.minute.used < limits.perMinute && counts.day.used < limits.perDay) {
    const next = { ...state, minute: add(counts.minute), day: add(counts.day) }
    return { decision: show(next, limits, now, true), next }
  }
  // A refused request leaves no trace in the windows: it does not open one either.
  const next = bannable ? refuse(state, limits, now) : state
  return { decision: show(next, limits, now, false), next }
}

/** What a caller has left at `now`, without a request. */
export const peek = (state: State, limits: Limits, now: number): Decision =>
  show(state, limits, now, decide(state, limits, now, false).decision.admitted)

/** The state of a caller whose ban is lifted: nothing of it is held against the caller. */
export const unban = ({ day, minute }: State): State => ({ ...minute && { minute }, ...day && { day } })

/** When nothing of a state counts any more: milliseconds since the Unix epoch. */
export const endOf = ({ ban, day, minute, refusals }: State): number =>
  Math.max(
    minute?.resetAt ?? 0,
    day?.resetAt ?? 0,
    refusals?.resetAt ?? 0,
    ban === undefined ? 0 : ban.until + banMemory * 1000
  )

/** The window that holds the caller back most: of exhausted ones the later reset, else the one with fewer remaining. */
export const tightest = ({ windows: [minute, day] }: Decision): Window =>
  minute.remaining !== day.remaining
    ? minute.remaining < day.remaining ? minute : day
    : minute.resetAt > day.resetAt
    ? minute
    : day

const isBanned = (state: State, now: number): state is State & { readonly ban: Ban } =>
  state.ban !== undefined && now < state.ban.until

/** Counts a refusal; with as many in a minute as the limits allow requests, it is a ban. */
const refuse = (state: State, limits: Limits, now: number): State => {
  const refusals = add(current(state.refusals, minuteWindow.seconds, now))
  if (refusals.used < Math.max(limits.perMinute, fewestRefusals)) return { ...state, refusals }
  const { refusals: _, ...rest } = state
  const repeated = state.ban !== undefined && now < state.ban.until + banMemory * 1000
  const seconds = repeated ? Math.min(2 * (state.ban?.seconds ?? 0), longestBan) : shortestBan
  return { ...rest, ban: { seconds, until: now + seconds * 1000 } }
}

const current = (count: Count | undefined, seconds: number, now: number): Count =>
  count !== undefined && now < count.resetAt ? count : { used: 0, resetAt: now + seconds * 1000 }

const add = ({ resetAt, used }: Count): Count => ({ used: used + 1, resetAt })

const show = (state: State, limits: Limits, now: number, admitted: boolean): Decision => {
  const banned = isBanned(state, now)
  const left = (count: Count | undefined, seconds: number, limit: number) => {
    if (banned) return { remaining: 0, resetAt: state.ban.until }
    const { resetAt, used } = current(count, seconds, now)
    return { remaining: Math.max(0, limit - used), resetAt }
  }
  return {
    admitted,
    banned,
    decidedAt: now,
    windows: [
      { ...minuteWindow, limit: limits.perMinute, ...left(state.minute, minuteWindow.seconds, limits.perMinute) },
      { ...dayWindow, limit: limits.perDay, ...left(state.day, dayWindow.seconds, limits.perDay) }
    ]
  }
}
