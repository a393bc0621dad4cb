/** Simulated time, processes and networks. The seed chooses delays, faults, and the order of simultaneous events. */
import { type Clock, Duration, Effect } from "effect"

/** The wall clock at the start, in epoch milliseconds. */
export const startOfTime = Date.UTC(2030, 0, 1)

type Run = () => void
type Receive<A> = (value: A) => void

export const makeWorld = (seed: number) => {
  /** The next event is the last one. */
  const events: Array<{ readonly at: number; readonly tie: number; run: Run }> = []
  const state = { now: 0 }
  let random = seed
  /** Returns a number from 0 to 1 (mulberry32). */
  const next = (): number => {
    random = random + 0x6d2b79f5 | 0
    let t = Math.imul(random ^ random >>> 15, 1 | random)
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32
  }
  const pick = <A>(values: ReadonlyArray<A>): A => values[Math.floor(next() * values.length)] ?? pick(values)
  return Object.assign(state, {
    between: (min: number, max: number): number => min + next() * (max - min),
    chance: (probability: number): boolean => next() < probability,
    pick,
    /** Runs `run` at a time, and returns a function that cancels it. */
    at(time: number, run: Run): Run {
      const event = { at: time, tie: next(), run }
      const index = events.findLastIndex(({ at, tie }) => at > event.at || at === event.at && tie > event.tie)
      events.splice(index + 1, 0, event)
      return () => void (event.run = () => {})
    },
    /** Runs events until `isDone`, and at most until `end`. */
    async runUntil(isDone: () => boolean, end: number): Promise<void> {
      // Counts the calls of `setImmediate`, by which fibers and batches continue in a later turn.
      let immediates = 0
      const { setImmediate } = globalThis
      const count = (...args: Parameters<typeof setImmediate>) => (immediates++, setImmediate(...args))
      Object.assign(globalThis, { setImmediate: count })
      try {
        for (;;) {
          // In a turn that starts no other one, everything waits for an event.
          for (let before = -1; before !== immediates;) {
            before = immediates
            await new Promise((resolve) => setImmediate(resolve))
          }
          const event = events.at(-1)
          if (isDone() || event === undefined || event.at > end) return
          events.pop()
          state.now = event.at
          event.run()
        }
      } finally {
        Object.assign(globalThis, { setImmediate })
      }
    }
  })
}
export type World = ReturnType<typeof makeWorld>

/** Makes a process, which can pause. Its wall clock can step. */
export const makeProcess = (world: World) => {
  /** `paused` is the length of all pauses in milliseconds. */
  const state = { paused: 0, pausedUntil: 0, clockOffset: 0 }
  /** Runs `run` in some milliseconds, or after a pause, and returns a function that cancels it. */
  const after = (ms: number, run: Run): Run => {
    let cancel = world.at(world.now + ms, () => {
      if (world.now >= state.pausedUntil) run()
      else cancel = world.at(state.pausedUntil, run)
    })
    return () => cancel()
  }
  const millis = (): number => startOfTime + world.now + state.clockOffset
  const [nanos, monotonic] = [() => BigInt(Math.round(millis() * 1e6)), () => BigInt(Math.round(world.now * 1e6))]
  const clock: Clock.Clock = {
    currentTimeMillisUnsafe: millis,
    currentTimeMillis: Effect.sync(millis),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: monotonic,
    monotonicTimeNanos: Effect.sync(monotonic),
    sleep: (duration) =>
      Effect.callback((resume) => Effect.sync(after(Duration.toMillis(duration), () => resume(Effect.void))))
  }
  const pause = (ms: number): void =>
    void Object.assign(state, { pausedUntil: world.now + ms, paused: state.paused + ms })
  return Object.assign(state, { after, clock, pause })
}
export type Process = ReturnType<typeof makeProcess>
/** Makes the way to a server. `faults` is the share of requests that are late, lost or doubled, or whose reply is. */
export const makeNetwork = (world: World) => {
  const state = { faults: 0, frozenUntil: 0, downUntil: 0 }
  /** Sends a request to `serve`, which gets the function for the reply. */
  const send = <A>(from: Process, serve: Receive<Receive<A>>, onReply: Receive<A>, onFailure: Run): void => {
    const fault = world.chance(state.faults) && world.pick(["late", "request lost", "reply lost", "doubled"])
    const delay = (): number => world.between(0.1, 5) + (fault === "late" ? world.between(0, 4_000) : 0)
    const arrive = (): void => {
      if (world.now < state.downUntil) from.after(delay(), onFailure)
      else if (world.now < state.frozenUntil) world.at(state.frozenUntil, arrive)
      else serve((value) => void (fault !== "reply lost" && from.after(delay(), () => onReply(value))))
    }
    if (fault !== "request lost") world.at(world.now + delay(), arrive)
    if (fault === "doubled") world.at(world.now + world.between(0, 4_000), arrive)
  }
  return Object.assign(state, { send })
}
