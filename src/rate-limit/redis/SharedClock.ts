/** This process's clock on the time that all processes share (`ClockScripts.ts`). */
import { Effect, Predicate } from "effect"
import type { Redis } from "effect/persistence"
import * as SteadyClock from "../SteadyClock.ts"
import * as ClockScripts from "./ClockScripts.ts"
import { RedisDown } from "./RedisClient.ts"
import type { RedisConnection } from "./RedisConnection.ts"
import { SingleFlight } from "./SingleFlight.ts"

/** A script that sends the estimate of the shared time. It returns `null` if the estimate was wrong. */
export type TimedScript<A extends { readonly now: number }> = (
  redis: Redis.Redis["Service"],
  time: ClockScripts.SharedTime
) => Effect.Effect<A | null, Redis.RedisError>

/**
 * Milliseconds by which `now`, the shared time in a reply, lies outside the time between sending and receiving. Within
 * it a delay is as likely as a difference of the clocks.
 */
export const deviation = (now: number, sentAt: number, receivedAt: number): number =>
  now > receivedAt ? now - receivedAt : Math.min(0, now - sentAt)

/**
 * The estimate of the shared time. Until the first synchronization it is the wall clock's time. From then on it is
 * never further from the shared time than the last round trip took. It deviates by a second only after a step of
 * Redis's clock or a suspension of this process.
 */
export class SharedClock {
  readonly #steady: SteadyClock.SteadyClock
  readonly #onFirst: (offset: number) => void
  readonly #key: (() => string) | undefined
  /** Milliseconds by which the shared time is ahead of Redis's clock, as last read. */
  #clockOffset = 0
  #isSynchronized = false
  readonly #synchronizing = new SingleFlight<"clock", RedisDown>()

  /**
   * `onFirst` gets the milliseconds by which the first synchronization moves this clock. `key` is the key of the clock
   * in Redis, if it is not the usual one.
   */
  constructor(steady: SteadyClock.SteadyClock, onFirst: (offset: number) => void, key?: () => string) {
    this.#steady = steady
    this.#onFirst = onFirst
    this.#key = key
  }

  /** The estimate of the shared time. */
  now(): number {
    return this.#steady.now()
  }

  /** Milliseconds to add to the shared time for the same instant on this process's wall clock. */
  wallOffset(): number {
    return this.#steady.wallOffset()
  }

  /** Synchronizes this clock with the shared time, once for all fibers that wait for it. */
  synchronize(connection: RedisConnection): Effect.Effect<void, RedisDown> {
    return this.#synchronizing.run("clock", this.#synchronizeOnce(connection))
  }

  /** Runs a script, and runs it again after a synchronization if the estimate was wrong. */
  run<A extends { readonly now: number }>(
    connection: RedisConnection,
    script: TimedScript<A>
  ): Effect.Effect<A, RedisDown> {
    const runOnce = this.#runOnce(connection, script)
    return runOnce.pipe(
      Effect.filterOrElse(Predicate.isNotNull, () => Effect.andThen(this.synchronize(connection), runOnce)),
      Effect.filterOrFail(
        Predicate.isNotNull,
        () => new RedisDown({ cause: new Error("The processes do not agree on the time") })
      )
    )
  }

  #runOnce<A extends { readonly now: number }>(connection: RedisConnection, script: TimedScript<A>) {
    return Effect.suspend(() => {
      const sentAt = this.#steady.monotonic()
      const time = { estimate: this.#steady.at(sentAt), clockOffset: this.#clockOffset }
      return Effect.map(connection.run((redis) => script(redis, time)), (reply) => {
        // After another synchronization the reply is on an outdated time.
        if (reply !== null && time.clockOffset === this.#clockOffset) this.#follow(reply.now, sentAt)
        return reply
      })
    })
  }

  readonly #synchronizeOnce = Effect.fnUntraced({ self: this }, function*(connection: RedisConnection) {
    const key = this.#key?.()
    const sentAt = this.#steady.monotonic()
    const [redisTime, clockOffset, isConfirmed] = yield* connection.run((redis) =>
      redis.eval(ClockScripts.compare)(
        this.#isSynchronized ? this.#steady.at(sentAt) : undefined,
        this.#clockOffset,
        key
      )
    )
    this.#clockOffset = clockOffset
    if (!this.#isSynchronized) {
      const offset = redisTime + clockOffset - this.#steady.now()
      this.#onFirst(offset)
      this.#steady.adjust(offset)
      this.#isSynchronized = true
      return
    }
    const stepped = this.#deviation(redisTime + clockOffset, sentAt)
    if (Math.abs(stepped) >= SteadyClock.minStep && isConfirmed === 0) {
      this.#clockOffset = yield* connection.run((redis) =>
        redis.eval(ClockScripts.correct)(clockOffset, clockOffset - stepped, key)
      )
      const seconds = Math.round(stepped / 1000)
      yield* Effect.logWarning(`Redis's clock stepped by ${seconds} seconds. Windows and bans keep their length.`)
    }
    // Delays of the second script do not matter: the deviation comes from the first.
    this.#follow(redisTime + this.#clockOffset, sentAt)
  })

  #deviation(now: number, sentAt: number): number {
    return deviation(now, this.#steady.at(sentAt), this.#steady.now())
  }

  /** Moves this clock to the shared time in a reply to a script sent at `sentAt`. */
  #follow(now: number, sentAt: number): void {
    this.#steady.adjust(this.#deviation(now, sentAt))
  }
}
