import type { Clock } from "effect"

/** A difference between two clocks below this, in milliseconds, is not a step: delays and rounding cause it too. */
export const minStep = 1_000

/**
 * Time for windows and bans, in milliseconds: the wall clock's at the start, then continued by the monotonic clock. A
 * step of the wall clock (NTP, an operator, a virtual machine that resumes) does not change it. So every window and ban
 * lasts its length. Responses and rows show times of the wall clock: `wallOffset` converts them.
 */
export const make = (clock: Clock.Clock) => {
  // Every request reads the clock: a division of numbers costs less than one of bigints.
  const monotonic = (): number => Math.floor(Number(clock.monotonicTimeNanosUnsafe()) / 1_000_000)
  let origin = clock.currentTimeMillisUnsafe() - monotonic()
  let offset = 0
  return {
    now: (): number => origin + monotonic(),
    /** The steady time of a reading of `monotonic`. */
    at: (reading: number): number => origin + reading,
    /** Moves the time, for a process that follows a time that it shares with others. */
    adjust(milliseconds: number): void {
      origin += milliseconds
    },
    monotonic,
    /**
     * Milliseconds to add to a steady time for the same instant on the wall clock. It changes only when the wall clock
     * steps, so that the reset of a window is the same in all responses. `now` is the steady time, if it was just read.
     */
    wallOffset(now = origin + monotonic()): number {
      const difference = clock.currentTimeMillisUnsafe() - now
      if (Math.abs(difference - offset) >= minStep) offset = difference
      return offset
    }
  }
}

export type SteadyClock = ReturnType<typeof make>
