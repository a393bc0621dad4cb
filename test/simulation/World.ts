/** Simulated time, processes and networks. The seed chooses delays, faults, and the order of simultaneous events. */
import { type Clock, Duration, Effect } from "effect"

/** The wall clock at the start, in epoch milliseconds. */
export const startOfTime = Date.UTC(2030, 0, 1)

/** The number of calls of `setImmediate`, by which fibers and batches continue in a later turn. */
let immediates = 0
const { setImmediate } = globalThis
Object.assign(globalThis, {
  setImmediate: (...args: Parameters<typeof setImmediate>) => (immediates++, setImmediate(...args))
})

type Run = () => void

export class World {
  /** Milliseconds since the start. */
  now = 0
  /** The next event is the last one. */
  readonly #events: Array<{ readonly at: number; readonly tie: number; readonly run: Run }> = []
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  /** Returns a number from 0 to 1 (mulberry32). */
  random = (): number => {
    this.#state = this.#state + 0x6d2b79f5 | 0
    let t = Math.imul(this.#state ^ this.#state >>> 15, 1 | this.#state)
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32
  }
  between = (min: number, max: number): number => min + this.random() * (max - min)
  chance = (probability: number): boolean => this.random() < probability
  pick = <A>(values: readonly [A, ...ReadonlyArray<A>]): A =>
    values[Math.floor(this.random() * values.length)] ?? values[0]

  /** Runs `run` at a time, and returns a function that cancels it. */
  at(time: number, run: Run): Run {
    const event = { at: Math.max(time, this.now), tie: this.random(), run }
    const index = this.#events.findLastIndex(({ at, tie }) => at > event.at || at === event.at && tie > event.tie)
    this.#events.splice(index + 1, 0, event)
    return () => {
      const found = this.#events.indexOf(event)
      if (found !== -1) this.#events.splice(found, 1)
    }
  }

  /** Runs events until `isDone`, and at most until `end`. */
  async runUntil(isDone: () => boolean, end: number): Promise<void> {
    for (;;) {
      // In a turn that starts no other one, everything waits for an event.
      for (let before = -1; before !== immediates;) {
        before = immediates
        await new Promise((resolve) => setImmediate(resolve))
      }
      const next = this.#events.at(-1)
      if (isDone() || next === undefined || next.at > end) return
      this.#events.pop()
      this.now = next.at
      next.run()
    }
  }
}

/** A process, which can pause. Its wall clock can step. */
export class Process {
  /** The length of all pauses in milliseconds. */
  paused = 0
  clockOffset = 0
  #pausedUntil = 0
  readonly clock: Clock.Clock
  readonly #world: World

  constructor(world: World) {
    this.#world = world
    const millis = (): number => startOfTime + world.now + this.clockOffset
    const [nanos, monotonic] = [() => BigInt(Math.round(millis() * 1e6)), () => BigInt(Math.round(world.now * 1e6))]
    this.clock = {
      currentTimeMillisUnsafe: millis,
      currentTimeMillis: Effect.sync(millis),
      currentTimeNanosUnsafe: nanos,
      currentTimeNanos: Effect.sync(nanos),
      monotonicTimeNanosUnsafe: monotonic,
      monotonicTimeNanos: Effect.sync(monotonic),
      sleep: (duration) =>
        Effect.callback((resume) => Effect.sync(this.after(Duration.toMillis(duration), () => resume(Effect.void))))
    }
  }

  pause(ms: number): void {
    this.#pausedUntil = this.#world.now + ms
    this.paused += ms
  }

  /** Runs `run` in some milliseconds, or after a pause. Returns a function that cancels it. */
  after(ms: number, run: Run): Run {
    let cancel = this.#world.at(this.#world.now + ms, () => {
      if (this.#world.now >= this.#pausedUntil) run()
      else cancel = this.#world.at(this.#pausedUntil, run)
    })
    return () => cancel()
  }
}

/** The way to a server. */
export class Network {
  /** The share of requests with a fault. */
  faults = 0
  frozenUntil = 0
  downUntil = 0
  readonly #world: World

  constructor(world: World) {
    this.#world = world
  }

  /** Sends a request to `serve`, which gets the function for the reply. Both can be late, lost or doubled. */
  send<A>(
    from: Process,
    serve: (reply: (value: A) => void) => void,
    onReply: (value: A) => void,
    onFailure: Run
  ): void {
    const world = this.#world
    const fault = world.chance(this.faults) && world.pick(["late", "request lost", "reply lost", "doubled"])
    const delay = (): number => world.between(0.1, 5) + (fault === "late" ? world.between(0, 4_000) : 0)
    const reply = (value: A) => void (fault !== "reply lost" && from.after(delay(), () => onReply(value)))
    const arrive = (): void => {
      if (world.now < this.downUntil) from.after(delay(), onFailure)
      else if (world.now < this.frozenUntil) world.at(this.frozenUntil, arrive)
      else serve(reply)
    }
    if (fault !== "request lost") world.at(world.now + delay(), arrive)
    if (fault === "doubled") world.at(world.now + world.between(0, 4_000), arrive)
  }
}
