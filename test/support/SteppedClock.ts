/** Clocks for tests of limits. */
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

/** A clock on which sleeps of less than 10 ms never end. So no reply of Redis is late, however busy the machine is. */
export const withoutLateReplies = (clock: Clock.Clock): Clock.Clock =>
  override(clock, {
    sleep: (duration) => Duration.toMillis(duration) < 10 ? Effect.never : clock.sleep(duration)
  })
