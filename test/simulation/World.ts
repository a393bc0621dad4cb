/** Simulated time, processes and networks. A seed chooses the delays, the faults, and the order of simultaneous events. */
import { type Clock, Duration, Effect } from "effect"

/** The wall clock of all machines at the start, in epoch milliseconds. */
export const startOfTime = Date.UTC(2030, 0, 1)

/** Returns a function that returns numbers from 0 to 1, the same ones for the same seed (mulberry32). */
const randomOf = (seed: number) => {
  let state = seed
  return (): number => {
    state = state + 0x6d2b79f5 | 0
    let t = Math.imul(state ^ state >>> 15, 1 | state)
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32
  }
}

interface Event {
  readonly at: number
  readonly tie: number
  readonly run: () => void
}

/** The number of calls of `setImmediate`, by which Effect and the limiter go on in a later turn. */
let immediates = 0
const { setImmediate } = globalThis
Object.assign(globalThis, {
  setImmediate: (...args: Parameters<typeof setImmediate>) => (immediates++, setImmediate(...args))
})

export class World {
  /** Milliseconds since the start. */
  now = 0
  /** In descending order of time. */
  readonly #events: Array<Event> = []
  readonly random: () => number

  constructor(seed: number) {
    this.random = randomOf(seed)
  }

  between = (min: number, max: number): number => min + this.random() * (max - min)
  chance = (probability: number): boolean => this.random() < probability
  pick = <A>(values: ReadonlyArray<A>): A => values[Math.floor(this.random() * values.length)] ?? this.pick(values)

  /** Runs `run` at a time. Returns a function that cancels it. */
  at(time: number, run: () => void): () => void {
    const event = { at: Math.max(time, this.now), tie: this.random(), run }
    const isEarlier = (other: Event | undefined): boolean =>
      other !== undefined && (other.at < event.at || other.at === event.at && other.tie < event.tie)
    let index = this.#events.length
    while (isEarlier(this.#events[index - 1])) index--
    this.#events.splice(index, 0, event)
    return () => {
      const found = this.#events.indexOf(event)
      if (found !== -1) this.#events.splice(found, 1)
    }
  }

  /** Runs events until `isDone`, and at most until `end`. */
  async runUntil(isDone: () => boolean, end: number): Promise<void> {
    for (;;) {
      // All fibers are suspended after a turn that started no other one.
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

/** A process, which can pause, and whose wall clock can step. */
export class Process {
  readonly world: World
  pausedUntil = 0
  /** The pauses so far, in milliseconds. */
  paused = 0
  clockOffset = 0

  constructor(world: World) {
    this.world = world
  }

  pause(ms: number): void {
    this.pausedUntil = this.world.now + ms
    this.paused += ms
  }

  /** Runs `run` in this process at a time, or after its pause. Returns a function that cancels it. */
  at(time: number, run: () => void): () => void {
    let cancel = this.world.at(time, () => {
      if (this.world.now >= this.pausedUntil) run()
      else cancel = this.world.at(this.pausedUntil, run)
    })
    return () => cancel()
  }

  readonly clock: Clock.Clock = (() => {
    const millis = (): number => startOfTime + this.world.now + this.clockOffset
    const nanos = (): bigint => BigInt(Math.round(millis() * 1e6))
    const monotonic = (): bigint => BigInt(Math.round(this.world.now * 1e6))
    return {
      currentTimeMillisUnsafe: millis,
      currentTimeMillis: Effect.sync(millis),
      currentTimeNanosUnsafe: nanos,
      currentTimeNanos: Effect.sync(nanos),
      monotonicTimeNanosUnsafe: monotonic,
      monotonicTimeNanos: Effect.sync(monotonic),
      sleep: (duration) =>
        Effect.callback<void>((resume) =>
          Effect.sync(this.at(this.world.now + Duration.toMillis(duration), () => resume(Effect.void)))
        )
    }
  })()
}

/** Faults of the way to a server, which hold until `end`. */
export class Network {
  readonly world: World
  /** The share of messages with a fault. */
  faults = 0
  #frozenUntil = 0
  #downUntil = 0

  constructor(world: World) {
    this.world = world
  }

  freeze(ms: number): void {
    this.#frozenUntil = this.world.now + ms
  }

  shutDown(ms: number): void {
    this.#downUntil = this.world.now + ms
  }

  /**
   * Sends a request of `process` to `serve`, which calls back with its reply. Requests and replies can be late or lost,
   * and requests can arrive twice.
   */
  send<A>(
    process: Process,
    serve: (reply: (value: A) => void) => void,
    onReply: (value: A) => void,
    onFailure: () => void
  ): void {
    const { world } = this
    const fault = world.chance(this.faults) ? world.pick(["late", "request lost", "reply lost", "doubled"]) : "none"
    const delay = (): number => world.between(0.1, 5) + (fault === "late" ? world.between(0, 4_000) : 0)
    const arrive = (): void => {
      if (world.now < this.#downUntil) process.at(world.now + delay(), onFailure)
      else if (world.now < this.#frozenUntil) world.at(this.#frozenUntil, arrive)
      else {
        serve((value) => {
          if (fault !== "reply lost") process.at(world.now + delay(), () => onReply(value))
        })
      }
    }
    if (fault !== "request lost") world.at(world.now + delay(), arrive)
    if (fault === "doubled") world.at(world.now + world.between(0, 4_000), arrive)
  }
}
