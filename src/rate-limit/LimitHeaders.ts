/** The headers (SPEC §8 and the IETF's `RateLimit` fields) and the texts that show a caller its limits. */
import type { Decision, Window } from "./Policy.ts"

/** Whose limits the headers show: those of the API key or of the client's address. */
export type LimitScope = "key" | "address"

/** The reason for a rejection: a window or a ban. */
export type RejectingWindow = "minute" | "day" | "ban"

/** Returns the window with the fewest remaining requests. On a tie, returns the one that resets later. */
export const mostRestrictive = ([minute, day]: Decision["windows"]): Window => {
  const isTie = minute.remaining === day.remaining
  return (isTie ? minute.resetAt > day.resetAt : minute.remaining < day.remaining) ? minute : day
}

/**
 * Returns "ban" if the key is banned, even if this request began the ban, or else the name of the window that rejected
 * the request. Returns `undefined` if it was allowed.
 */
export const rejectingWindow = ({ allowed, bannedUntil, windows }: Decision): RejectingWindow | undefined => {
  if (allowed) return undefined
  return bannedUntil === undefined ? mostRestrictive(windows).name : "ban"
}

/** Says why a request was rejected, and when to retry. */
export const describeRejection = (decision: Decision, scope: LimitScope): string => {
  const retry = `Retry in ${retryAfterSeconds(decision)} seconds.`
  if (decision.bannedUntil !== undefined) {
    return `The API key is temporarily banned for continued requests after 429 responses. ${retry}`
  }
  const { limit, name } = mostRestrictive(decision.windows)
  const caller = scope === "address" ? "Your address" : "The API key"
  return `${caller} has used its limit of ${limit} requests per ${name}. ${retry}`
}

const shownWindows = ({ bannedUntil, windows: [minute, day] }: Decision): Decision["windows"] =>
  bannedUntil === undefined ? [minute, day] : [{ ...minute, remaining: 0, resetAt: bannedUntil }, day]

export const retryAfterSeconds = (decision: Decision): number =>
  secondsUntilReset(mostRestrictive(shownWindows(decision)), decision)

const secondsUntilReset = (window: Window, { decidedAt }: Decision): number =>
  Math.ceil((window.resetAt - decidedAt) / 1000)

const policy = ({ limit, name, seconds }: Window): string => `"${name}";q=${limit};w=${seconds}`

const left = (window: Window, decision: Decision): string =>
  `"${window.name}";r=${window.remaining};t=${secondsUntilReset(window, decision)}`

export const headers = (decision: Decision, scope: LimitScope): Record<string, string> => {
  const windows = shownWindows(decision)
  const window = mostRestrictive(windows)
  const [minute, day] = windows
  return {
    "x-ratelimit-limit": String(window.limit),
    "x-ratelimit-remaining": String(window.remaining),
    "x-ratelimit-reset": String(Math.ceil(window.resetAt / 1000)),
    "x-ratelimit-scope": scope,
    "ratelimit-policy": `${policy(minute)}, ${policy(day)}`,
    "ratelimit": `${left(minute, decision)}, ${left(day, decision)}`
  }
}
