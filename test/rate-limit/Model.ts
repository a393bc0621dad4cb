/**
 * A slow reference model of SPEC §8 and of bans, to compare decisions with. It keeps all requests of a caller, and
 * computes each decision from all of them.
 */
import type { Limits } from "../../src/api/Plans.ts"
import type { Decision } from "../../src/rate-limit/Policy.ts"

const minute = 60_000
const day = 86_400_000
const hour = 3_600_000

/** The decision of the model on a request. */
export interface Expected {
  readonly allowed: boolean
  readonly bannedUntil: number | undefined
  /** The windows of the minute and of the day. */
  readonly windows: ReadonlyArray<{ readonly remaining: number; readonly resetAt: number }>
}

/** Converts a decision of the policy to the form of the model's. */
export const asExpected = ({ allowed, bannedUntil, windows }: Decision): Expected => ({
  allowed,
  bannedUntil,
  windows: windows.map(({ remaining, resetAt }) => ({ remaining, resetAt }))
})

/** Returns the start of the last window. A time opens a window if it is after the end of the window before. */
const lastWindow = (times: ReadonlyArray<number>, length: number): number =>
  times.reduce((opened, time) => time >= opened + length ? time : opened, -Infinity)

const inWindow = (times: ReadonlyArray<number>, length: number, now: number) => {
  const opened = lastWindow(times, length)
  return now < opened + length
    ? { used: times.filter((time) => time >= opened).length, resetAt: opened + length }
    : { used: 0, resetAt: now + length }
}

export const model = (initialLimits: Limits, bannable: boolean) => {
  let limits = initialLimits
  const allowedAt: Array<number> = []
  /** The times of the rejections since the last ban began or was lifted. */
  let rejectedAt: Array<number> = []
  const bans: Array<{ readonly begins: number; readonly ends: number; liftedAt?: number }> = []

  const banAt = (now: number) => bans.find(({ ends, liftedAt = Infinity }) => now < ends && now < liftedAt)

  const windowsAt = (now: number): Expected["windows"] =>
    ([[minute, limits.perMinute], [day, limits.perDay]] as const).map(([length, limit]) => {
      const { resetAt, used } = inWindow(allowedAt, length, now)
      return { remaining: Math.max(0, limit - used), resetAt }
    })

  return {
    request(now: number): Expected {
      const ban = banAt(now)
      if (ban !== undefined) return { allowed: false, bannedUntil: ban.ends, windows: windowsAt(now) }
      const allowed = inWindow(allowedAt, minute, now).used < limits.perMinute &&
        inWindow(allowedAt, day, now).used < limits.perDay
      if (allowed) {
        allowedAt.push(now)
      } else if (bannable) {
        rejectedAt.push(now)
        if (inWindow(rejectedAt, minute, now).used >= Math.max(3, limits.perMinute)) {
          rejectedAt = []
          const previous = bans.at(-1)
          const doubled = previous !== undefined && previous.liftedAt === undefined && now < previous.ends + hour
          const length = doubled ? Math.min(hour, 2 * (previous.ends - previous.begins)) : minute
          bans.push({ begins: now, ends: now + length })
        }
      }
      return { allowed, bannedUntil: banAt(now)?.ends, windows: windowsAt(now) }
    },
    /** Changes the limits. The requests in open windows stay counted. */
    change(changed: Limits): void {
      limits = changed
    },
    lift(now: number): void {
      rejectedAt = []
      const last = bans.at(-1)
      if (last !== undefined) last.liftedAt = Math.min(now, last.liftedAt ?? Infinity)
    }
  }
}
