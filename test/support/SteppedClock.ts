/** Clocks for tests in which the wall clock steps. */
import { Clock, Duration, Effect } from "effect"

const over = (clock: Clock.Clock, methods: Partial<Clock.Clock>): Clock.Clock =>
  Object.assign(Object.create(clock), methods)

/** The time of `clock`, with a wall clock that only the test steps. */
export const make = (clock: Clock.Clock) => {
  let stepped = 0
  const wall = () => clock.currentTimeMillisUnsafe() + stepped
  return {
    clock: over(clock, { currentTimeMillisUnsafe: wall, currentTimeMillis: Effect.sync(wall) }),
    step(milliseconds: number): void {
      stepped += milliseconds
    }
  }
}

/** A clock that stands still until the test lets time pass. Short sleeps are real; sleeps of half a second never end. */
export const makeStill = (clock: Clock.Clock) => {
  let passed = 0
  const start = clock.currentTimeMillisUnsafe()
  return {
    clock: over(clock, {
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
