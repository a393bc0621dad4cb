/** Clocks for tests in which the wall clock steps. */
import { Clock, Duration, Effect } from "effect"

const override = (clock: Clock.Clock, methods: Partial<Clock.Clock>): Clock.Clock =>
  Object.assign(Object.create(clock), methods)

/** Makes a clock with the time of `clock`, whose wall clock also steps when the test calls `step`. */
export const make = (clock: Clock.Clock) => {
  let stepped = 0
  const wall = () => clock.currentTimeMillisUnsafe() + stepped
  return {
    clock: override(clock, { currentTimeMillisUnsafe: wall, currentTimeMillis: Effect.sync(wall) }),
    step(milliseconds: number): void {
      stepped += milliseconds
    }
  }
}

/**
 * Makes a clock that stands still until the test calls `pass`. Sleeps of less than half a second are real; longer ones
 * never end.
 */
export const makeStill = (clock: Clock.Clock) => {
  let passed = 0
  const start = clock.currentTimeMillisUnsafe()
  return {
    clock: override(clock, {
      currentTimeMillisUnsafe: () => start + passed,
      currentTimeMillis: Effect.sync(() => start + passed),
      monotonicTimeNanosUnsafe: () => BigInt(passed) * 1_000_000n,
      sleep: (duration) => Duration.toMillis(duration) < 500 ? clock.sleep(duration) : Effect.never
    }),
    pass(milliseconds: number): void {
      passed += milliseconds
    }
  }
}
