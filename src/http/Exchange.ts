/**
 * What is known of the request in progress: filled in by the middleware that it passes, read for the headers of the
 * answer and for the log line.
 */
import { type Cause, Clock, Context, Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import type { Decision } from "../rate-limit/Rule.ts"

export class Exchange {
  readonly requestId: string
  /** When the request came, by the monotonic clock: nanoseconds. */
  readonly startedAt: bigint
  /** The path of the endpoint as the contract writes it, once it is known. */
  route: string | undefined = undefined
  /** The id of the caller's API key, once it is verified. */
  keyId: string | undefined = undefined
  /** What the rate limiter decided, once the request is charged to somebody. */
  decision: Decision | undefined = undefined
  /** What went wrong on the short way, to be answered by the long one. */
  failure: Cause.Cause<never> | undefined = undefined

  constructor(requestId: string, startedAt: bigint) {
    this.requestId = requestId
    this.startedAt = startedAt
  }

  /**
   * Begins exchanges, now, each under the `X-Request-Id` that its caller sent, if that is short and plain, else under
   * an id of ours: a random UUID whose last part counts the requests, so that each takes no randomness of its own.
   */
  static readonly making = Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const random = yield* SecureRandom.SecureRandom
    const beginning = (yield* random.uuidV4()).slice(0, -12)
    let count = 0
    return (sentId: unknown): Exchange => {
      const requestId = typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId)
        ? sentId
        : beginning + (++count).toString(16).padStart(12, "0")
      return new Exchange(requestId, clock.monotonicTimeNanosUnsafe())
    }
  })

  static readonly #left = new WeakMap<object, Exchange>()

  /** Leaves the request `source`, with what was done of it, to the long way. */
  leave(source: object): void {
    Exchange.#left.set(source, this)
  }

  /** What was done of the request `source` so far. */
  static leftOf(source: object): Exchange | undefined {
    return Exchange.#left.get(source)
  }
}

/** The long way sets it for each request. */
export const CurrentExchange = Context.Reference<Exchange>("petstore/http/Exchange", {
  defaultValue: (): Exchange => {
    throw new Error("There is no exchange outside of the long way")
  }
})
