/**
 * SPEC §8 and the rule of bans once more, slowly, for tests to compare with: everything that ever happened to a caller
 * is kept, and every question is answered from all of it.
 */
import type { Limits } from "../../src/api/Plans.ts"
import type { Decision } from "../../src/rate-limit/Policy.ts"

const minute = 60_000
const day = 86_400_000
const hour = 3_600_000

/** What the model says of a request. */
export interface Expected {
  readonly allowed: boolean
  readonly bannedUntil: number | undefined
  /** Of the minute and of the day. */
  readonly left: ReadonlyArray<{ readonly remaining: number; readonly resetAt: number }>
}

/** What a decision says, as the model says it. */
export const asExpected = ({ allowed: admitted, bannedUntil, windows }: Decision): Expected => ({
  allowed: admitted,
  bannedUntil,
  left: windows.map(({ remaining, resetAt }) => ({ remaining, resetAt }))
})

/** When the last of the windows begins that `times` open, one after another. */
const lastWindow = (times: ReadonlyArray<number>, length: number): number =>
  times.reduce((opened, time) => time >= opened + length ? time : opened, -Infinity)

const inWindow = (times: ReadonlyArray<number>, length: number, now: number) => {
  const opened = lastWindow(times, length)
  return now < opened + length
    ? { used: times.filter((time) => time >= opened).length, resetAt: opened + length }
    : { used: 0, resetAt: now + length }
}

export const model = (limits: Limits, bannable: boolean) => {
  const admissions: Array<number> = []
  /** Since the last ban, or its lifting. */
  let refusals: Array<number> = []
  const bans: Array<{ readonly begins: number; readonly ends: number; liftedAt?: number }> = []

  const banAt = (now: number) => bans.find(({ ends, liftedAt = Infinity }) => now < ends && now < liftedAt)

  const left = (now: number): Expected["left"] =>
    ([[minute, limits.perMinute], [day, limits.perDay]] as const).map(([length, limit]) => {
      const { resetAt, used } = inWindow(admissions, length, now)
      return { remaining: limit - used, resetAt }
    })

  return {
    request(now: number): Expected {
      const ban = banAt(now)
      if (ban !== undefined) return { allowed: false, bannedUntil: ban.ends, left: left(now) }
      const allowed = inWindow(admissions, minute, now).used < limits.perMinute &&
        inWindow(admissions, day, now).used < limits.perDay
      if (allowed) {
        admissions.push(now)
      } else if (bannable) {
        refusals.push(now)
        if (inWindow(refusals, minute, now).used >= Math.max(3, limits.perMinute)) {
          refusals = []
          const before = bans.at(-1)
          const doubled = before !== undefined && before.liftedAt === undefined && now < before.ends + hour
          const length = doubled ? Math.min(hour, 2 * (before.ends - before.begins)) : minute
          bans.push({ begins: now, ends: now + length })
        }
      }
      return { allowed: allowed, bannedUntil: banAt(now)?.ends, left: left(now) }
    },
    lift(now: number): void {
      refusals = []
      const last = bans.at(-1)
      if (last !== undefined) last.liftedAt = Math.min(now, last.liftedAt ?? Infinity)
    }
  }
}
