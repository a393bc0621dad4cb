/** Which requests a server works on at once: a bound for all of them, and a share of it for each caller. */
import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../../api/Errors.ts"
import type { Caller } from "../../rate-limit/CallerStates.ts"
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
const maxLargeResponsesPerCaller = 2
/** Callers without requests are evicted beyond this number. */
const maxIdleCallers = 10_000

/** The error for a request that found no slot in time. */
export const overloaded = new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." })

/** What one caller may occupy. */
class Share {
  readonly all = new ConcurrencyLimit({ maxInFlight: maxInFlightPerCaller, maxQueued: maxQueuedPerCaller })
  readonly large = new ConcurrencyLimit({ maxInFlight: maxLargeResponsesPerCaller, maxQueued: maxQueuedPerCaller })

  get isIdle(): boolean {
    return this.all.isIdle && this.large.isIdle
  }
}

interface Limits {
  readonly all: ConcurrencyLimit
  readonly large: ConcurrencyLimit
  readonly shareOf: (caller: Caller) => Share
}

/**
 * The slot of one request. A request occupies it while it is in flight: from its start until its response is flushed,
 * except while it waits for its body, or for its caller's share.
 */
export class Slot {
  readonly #control: Limits
  readonly #onChange: (started: 1 | -1) => void
  /** The limits before that of all requests, in the order in which the request waits for them. */
  readonly #limits: Array<ConcurrencyLimit> = []
  /** How many of the limits the request has entered; that of all requests comes last. */
  #entered = 0
  #share: Share | undefined
  #isHandled = false
  #isUnsent = false
  #isPaused = false

  constructor(control: Limits, onChange: (started: 1 | -1) => void) {
    this.#control = control
    this.#onChange = onChange
  }

  /** Occupies the slot while the request is handled. */
  start(): void {
    if (!this.#isHandled) {
      this.#onChange(1)
      this.#isHandled = true
      for (const limit of this.#limits) limit.addMember()
    }
    if (!this.#isPaused) this.#enterAll()
  }

  /** The request is handled, or given up. */
  end(): void {
    if (this.#isHandled) {
      this.#onChange(-1)
      this.#isHandled = false
      for (const limit of this.#limits) limit.removeMember()
    }
    this.#isPaused = false
    if (!this.#isUnsent) this.#leaveAll()
  }

  /** Occupies the slot while the response is not flushed. */
  hold(): void {
    this.#isUnsent = true
    this.#enterAll()
  }

  /** The response is flushed, or its connection is closed. */
  release(): void {
    this.#isUnsent = false
    if (!this.#isHandled) this.#leaveAll()
  }

  /**
   * Counts the request for `caller`, instead of the caller before, once `caller` has room in its share. Fails after a
   * second without room.
   */
  assign(caller: Caller): Effect.Effect<void, ServiceUnavailable> {
    const share = this.#control.shareOf(caller)
    if (share === this.#share) return Effect.void
    if (this.#share !== undefined) this.#remove(this.#share.all)
    this.#share = share
    return this.#join(share.all)
  }

  /** Before a large response is rendered: waits until few others are in memory. Fails after a second. */
  reserveLargeResponse(): Effect.Effect<void, ServiceUnavailable> {
    if (this.#limits.includes(this.#control.large)) return Effect.void
    const ofAll = Effect.suspend(() => this.#join(this.#control.large))
    return this.#share === undefined ? ofAll : Effect.andThen(this.#join(this.#share.large), ofAll)
  }

  /** Runs `wait` without occupying the slot, and occupies it again afterwards, once there is room. */
  whileWaiting<A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> {
    return Effect.suspend(() => {
      this.#pause()
      return Effect.flatMap(wait, (result) => {
        // Nothing had to be waited for, and the request has not started: nobody would call `end`.
        if (!this.#isHandled) this.#isPaused = false
        return this.#isHandled ? Effect.as(this.#resume(), result) : Effect.succeed(result)
      })
    })
  }

  #join(limit: ConcurrencyLimit): Effect.Effect<void, ServiceUnavailable> {
    if (limit.mustQueue) {
      return Effect.suspend(() => {
        this.#pause()
        this.#add(limit)
        return this.#resume()
      })
    }
    this.#add(limit)
    if (this.#entered > 0) {
      limit.enter()
      this.#entered++
    }
    return Effect.void
  }

  #add(limit: ConcurrencyLimit): void {
    this.#limits.push(limit)
    if (this.#isHandled) limit.addMember()
  }

  #remove(limit: ConcurrencyLimit): void {
    const index = this.#limits.indexOf(limit)
    if (index === -1) return
    this.#limits.splice(index, 1)
    if (this.#isHandled) limit.removeMember()
    if (this.#entered === 0) return
    limit.leave()
    this.#entered--
  }

  #pause(): void {
    this.#isPaused = true
    this.#leaveAll()
  }

  /** Enters each limit once it has room: a request that waits for one has left those behind it to others. */
  #resume(): Effect.Effect<void, ServiceUnavailable> {
    for (let limit = this.#next(); limit !== undefined; limit = this.#next()) {
      if (limit.mustQueue) return Effect.flatMap(this.#queueIn(limit), () => this.#resume())
      limit.enter()
      this.#entered++
    }
    this.#isPaused = false
    return Effect.void
  }

  #queueIn(limit: ConcurrencyLimit): Effect.Effect<void, ServiceUnavailable> {
    return Effect.callback((resume) => {
      let isInterrupted = false
      limit.whenRoom(() => {
        if (isInterrupted) return
        if (limit.isFull) return resume(Effect.fail(overloaded))
        limit.enter()
        this.#entered++
        resume(Effect.void)
      })
      return Effect.sync(() => {
        isInterrupted = true
      })
    })
  }

  /** The first limit that the request has not entered. */
  #next(): ConcurrencyLimit | undefined {
    return this.#entered === this.#limits.length ? this.#control.all : this.#limits[this.#entered]
  }

  #enterAll(): void {
    for (let limit = this.#next(); limit !== undefined; limit = this.#next()) {
      limit.enter()
      this.#entered++
    }
  }

  #leaveAll(): void {
    for (; this.#entered > 0; this.#entered--) (this.#limits[this.#entered - 1] ?? this.#control.all).leave()
  }
}

const make = () => {
  const all = new ConcurrencyLimit({ maxInFlight, maxQueued })
  const shares = new Map<Caller, Share>()
  const large = new ConcurrencyLimit({ maxInFlight: maxLargeResponses, maxQueued })
  const shareOf = (caller: Caller): Share => {
    let share = shares.get(caller)
    if (share === undefined) {
      if (shares.size >= maxIdleCallers) {
        for (const [other, { isIdle }] of shares) if (isIdle) shares.delete(other)
      }
      share = new Share()
      shares.set(caller, share)
    }
    return share
  }
  const limits: Limits = { all, large, shareOf }
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
    newSlot: (): Slot => new Slot(limits, onChange)
  }
}

export class AdmissionControl extends Context.Service<AdmissionControl, ReturnType<typeof make>>()(
  "petstore/http/AdmissionControl"
) {
  /** The requests of one server. */
  static readonly layer = Layer.sync(AdmissionControl, make)
}
