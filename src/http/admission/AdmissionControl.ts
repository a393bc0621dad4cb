/** Limits how many requests the server handles at once, in all and for each caller. */
import { Context, Effect, Layer, Metric, Schedule } from "effect"
import { ServiceUnavailable } from "../../api/Errors.ts"
import type { Caller } from "../../rate-limit/CallerStates.ts"
import { ConcurrencyLimit } from "./ConcurrencyLimit.ts"

/** The maximum of requests in flight. More requests would take longer, and each holds memory. */
const maxInFlight = 2_500
/** The maximum of queued requests: as many as connections. It bounds the memory of pipelined requests. */
const maxQueued = 10_000
/** The maximum for one API key or one address, so that no caller can occupy every slot. */
const maxInFlightPerCaller = 1_000
const maxQueuedPerCaller = 10_000
/**
 * The maximum of large responses that are rendered or not flushed. A response is large above `largeResponse`
 * characters.
 */
const maxLargeResponses = 4
const maxLargeResponsesPerCaller = 2
/** Above this number of callers in memory, callers without requests are evicted. */
const maxIdleCallers = 10_000

const inFlight = Metric.gauge("http_server_requests_in_flight", { description: "Requests that occupy a slot." })
const queued = Metric.gauge("http_server_requests_queued", { description: "Requests that wait for a slot." })

/** The error for a request that gets no slot in time. */
export const overloaded = new ServiceUnavailable({ message: "The service is overloaded. Retry shortly." })

/** The limits of one caller. */
class CallerLimits {
  readonly all = new ConcurrencyLimit({ maxInFlight: maxInFlightPerCaller, maxQueued: maxQueuedPerCaller })
  readonly large = new ConcurrencyLimit({ maxInFlight: maxLargeResponsesPerCaller, maxQueued: maxQueuedPerCaller })

  get isIdle(): boolean {
    return this.all.isIdle && this.large.isIdle
  }
}

interface ServerLimits {
  readonly all: ConcurrencyLimit
  readonly large: ConcurrencyLimit
  readonly limitsOf: (caller: Caller) => CallerLimits
}

/**
 * The slot of one request. The request occupies it while it is in flight: from its start until its response is flushed.
 * It releases the slot while it waits for its body or for its caller's limit.
 */
export class Slot {
  readonly #server: ServerLimits
  readonly #onChange: (started: 1 | -1) => void
  /** The limits that the request enters before the limit of all requests, in the order of entry. */
  readonly #limits: Array<ConcurrencyLimit> = []
  /** The number of limits that the request has entered. The limit of all requests comes last. */
  #entered = 0
  #callerLimits: CallerLimits | undefined
  #isHandled = false
  #isUnsent = false
  #isPaused = false

  constructor(server: ServerLimits, onChange: (started: 1 | -1) => void) {
    this.#server = server
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

  /** Ends the handling of the request. The slot stays occupied while the response is not flushed. */
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

  /** Ends `hold`: the response is flushed, or its connection is closed. */
  release(): void {
    this.#isUnsent = false
    if (!this.#isHandled) this.#leaveAll()
  }

  /**
   * Counts the request for `caller` instead of the caller before. Waits for room in the limit of `caller`, and fails
   * after one second.
   */
  assign(caller: Caller): Effect.Effect<void, ServiceUnavailable> {
    const limits = this.#server.limitsOf(caller)
    if (limits === this.#callerLimits) return Effect.void
    if (this.#callerLimits !== undefined) this.#remove(this.#callerLimits.all)
    this.#callerLimits = limits
    return this.#join(limits.all)
  }

  /**
   * Waits until few other large responses are in memory. It must run before a large response is rendered. Fails after
   * one second.
   */
  reserveLargeResponse(): Effect.Effect<void, ServiceUnavailable> {
    if (this.#limits.includes(this.#server.large)) return Effect.void
    const joinServerLimit = Effect.suspend(() => this.#join(this.#server.large))
    const limits = this.#callerLimits
    return limits === undefined ? joinServerLimit : Effect.andThen(this.#join(limits.large), joinServerLimit)
  }

  /** Runs `wait` without the slot, and occupies the slot again afterwards, once there is room. */
  whileWaiting<A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E | ServiceUnavailable, R> {
    return Effect.suspend(() => {
      this.#pause()
      return Effect.flatMap(wait, (result) => {
        // The body arrived before the request started. No call of `end` would leave limits that are entered here.
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

  /** Enters each limit once it has room. A request that waits for one limit has not entered the limits after it. */
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
      limit.startOrQueue(() => {
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
    return this.#entered === this.#limits.length ? this.#server.all : this.#limits[this.#entered]
  }

  #enterAll(): void {
    for (let limit = this.#next(); limit !== undefined; limit = this.#next()) {
      limit.enter()
      this.#entered++
    }
  }

  #leaveAll(): void {
    for (; this.#entered > 0; this.#entered--) (this.#limits[this.#entered - 1] ?? this.#server.all).leave()
  }
}

const make = () => {
  const all = new ConcurrencyLimit({ maxInFlight, maxQueued })
  const callers = new Map<Caller, CallerLimits>()
  const large = new ConcurrencyLimit({ maxInFlight: maxLargeResponses, maxQueued })
  const limitsOf = (caller: Caller): CallerLimits => {
    let callerLimits = callers.get(caller)
    if (callerLimits === undefined) {
      if (callers.size >= maxIdleCallers) {
        for (const [other, { isIdle }] of callers) if (isIdle) callers.delete(other)
      }
      callerLimits = new CallerLimits()
      callers.set(caller, callerLimits)
    }
    return callerLimits
  }
  const limits: ServerLimits = { all, large, limitsOf }
  let handled = 0
  const onChange = (started: 1 | -1): void => {
    handled += started
  }
  return {
    /** The limit of all requests of the server. */
    all,
    /** Returns the milliseconds for which a client may read nothing. It is short while requests queue for a slot. */
    maxStallMs: (): number => all.queued > 0 ? 500 : large.queued > 0 ? 1_000 : Infinity,
    /** The number of requests that are handled, with or without a slot. */
    handled: (): number => handled,
    newSlot: (): Slot => new Slot(limits, onChange)
  }
}

export class AdmissionControl extends Context.Service<AdmissionControl, ReturnType<typeof make>>()(
  "petstore/http/AdmissionControl"
) {
  /** One instance for each server. Its gauges change once a second, so that no request pays for them. */
  static readonly layer = Layer.effect(
    AdmissionControl,
    Effect.gen(function*() {
      const control = make()
      const update = Effect.suspend(() =>
        Effect.andThen(Metric.update(inFlight, control.all.inFlight), Metric.update(queued, control.all.queued))
      )
      yield* Effect.forkScoped(Effect.repeat(update, Schedule.spaced("1 second")))
      return control
    })
  )
}
