/** Which requests a server works on at once: a bound for all of them, and a share of it for each caller. */
import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import type { Caller } from "../rate-limit/Callers.ts"
import { ConcurrencyLimit } from "./ConcurrencyLimit.ts"

/** With more requests in flight all of them would take longer, and each holds memory. */
const maxInFlight = 2_500
/** As many as connections: a client that pipelines must not fill the memory. */
const maxQueued = 10_000
/** The share of one API key, or of one address: no caller can occupy every slot. */
const maxInFlightPerCaller = 1_000
const maxQueuedPerCaller = 10_000
/** Responses of more than `largeResponse` characters that are rendered or not flushed, at once. */
const maxLargeResponses = 4
/** Callers without requests are evicted beyond this number. */
const maxIdleCallers = 10_000

/** The error for a request that found no slot in time. */
export const overloaded = new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." })

interface Limits {
  readonly all: ConcurrencyLimit
  readonly large: ConcurrencyLimit
  readonly ofCaller: (caller: Caller) => ConcurrencyLimit
}

/**
 * The slot of one request. A request occupies it while it is in flight: from its start until its response is flushed,
 * except while it waits for its body, or for its caller's share.
 */
export class Slot {
  readonly #control: Limits
  readonly #onChange: (started: 1 | -1) => void
  /** The limits beside that of all requests: of the caller, and of large responses. */
  readonly #limits: Array<ConcurrencyLimit> = []
  #isAssigned = false
  #isHandled = false
  #isUnsent = false
  #isPaused = false
  #isOccupied = false

  constructor(control: Limits, onChange: (started: 1 | -1) => void) {
    this.#control = control
    this.#onChange = onChange
  }

  /** Occupies the slot while the request is handled. */
  start(): void {
    if (!this.#isHandled) this.#onChange(1)
    this.#isHandled = true
    this.#update()
  }

  /** The request is handled, or given up. */
  end(): void {
    if (this.#isHandled) this.#onChange(-1)
    this.#isHandled = false
    this.#isPaused = false
    this.#update()
  }

  /** Occupies the slot while the response is not flushed. */
  hold(): void {
    this.#isUnsent = true
    this.#update()
  }

  /** The response is flushed, or its connection is closed. */
  release(): void {
    this.#isUnsent = false
    this.#update()
  }

  /** Counts the request for `caller`, once the caller has room in its share. Fails after a second without room. */
  assign(caller: Caller): Effect.Effect<void, ServiceUnavailable> {
    if (this.#isAssigned) return Effect.void
    this.#isAssigned = true
    return this.#join(this.#control.ofCaller(caller))
  }

  /** Before a large response is rendered: waits until few others are in memory. Fails after a second. */
  reserveLargeResponse(): Effect.Effect<void, ServiceUnavailable> {
    return this.#limits.includes(this.#control.large) ? Effect.void : this.#join(this.#control.large)
  }

  /** Runs `wait` without occupying the slot, and occupies it again afterwards, once there is room. */
  whileWaiting<A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> {
    return Effect.suspend(() => {
      this.#pause()
      return Effect.flatMap(wait, (result) => {
        if (!this.#control.all.mustQueue) {
          this.#resume()
          return Effect.succeed(result)
        }
        return Effect.as(this.#queueIn(this.#control.all, () => {}), result)
      })
    })
  }

  #join(limit: ConcurrencyLimit): Effect.Effect<void, ServiceUnavailable> {
    if (!limit.mustQueue) {
      this.#add(limit)
      return Effect.void
    }
    return Effect.suspend(() => {
      this.#pause()
      return this.#queueIn(limit, () => this.#add(limit))
    })
  }

  #queueIn(limit: ConcurrencyLimit, onRoom: () => void): Effect.Effect<void, ServiceUnavailable> {
    return Effect.callback((resume) => {
      let isInterrupted = false
      limit.whenRoom(() => {
        if (isInterrupted) return
        const isRejected = limit.isFull
        if (!isRejected) onRoom()
        this.#resume()
        resume(isRejected ? Effect.fail(overloaded) : Effect.void)
      })
      return Effect.sync(() => {
        isInterrupted = true
      })
    })
  }

  #add(limit: ConcurrencyLimit): void {
    this.#limits.push(limit)
    if (this.#isOccupied) limit.enter()
  }

  #pause(): void {
    this.#isPaused = true
    this.#update()
  }

  #resume(): void {
    this.#isPaused = false
    this.#update()
  }

  /** The invariant: a slot counts in all of its limits while it is handled and not paused, or not flushed. */
  #update(): void {
    const isOccupied = (this.#isHandled && !this.#isPaused) || this.#isUnsent
    if (isOccupied === this.#isOccupied) return
    this.#isOccupied = isOccupied
    if (isOccupied) {
      this.#control.all.enter()
      for (const limit of this.#limits) limit.enter()
    } else {
      this.#control.all.leave()
      for (const limit of this.#limits) limit.leave()
    }
  }
}

const make = () => {
  const all = new ConcurrencyLimit({ maxInFlight, maxQueued })
  const callers = new Map<Caller, ConcurrencyLimit>()
  const large = new ConcurrencyLimit({ maxInFlight: maxLargeResponses, maxQueued })
  const ofCaller = (caller: Caller): ConcurrencyLimit => {
    let limit = callers.get(caller)
    if (limit === undefined) {
      if (callers.size >= maxIdleCallers) {
        for (const [other, { isIdle }] of callers) if (isIdle) callers.delete(other)
      }
      limit = new ConcurrencyLimit({ maxInFlight: maxInFlightPerCaller, maxQueued: maxQueuedPerCaller })
      callers.set(caller, limit)
    }
    return limit
  }
  let handled = 0
  const onChange = (started: 1 | -1): void => {
    handled += started
  }
  return {
    /** The slots of all requests of the server. */
    all,
    /** For how long a client may read nothing: less while requests queue for what it occupies. */
    maxStallMs: (): number => all.queued > 0 ? 500 : large.queued > 0 ? 1_000 : Infinity,
    /** Requests that are handled, those that wait without a slot included. */
    handled: (): number => handled,
    newSlot: (): Slot => new Slot({ all, large, ofCaller }, onChange)
  }
}

export class AdmissionControl extends Context.Service<AdmissionControl, ReturnType<typeof make>>()(
  "petstore/http/AdmissionControl"
) {
  /** The requests of one server. */
  static readonly layer = Layer.sync(AdmissionControl, make)
}
