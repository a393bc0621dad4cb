import { DateTime, Option, Schema, SchemaGetter } from "effect"
import type { Headers } from "effect/http"

const EpochSeconds = Schema.FiniteFromString.pipe(Schema.decodeTo(Schema.DateTimeUtcFromMillis, {
  decode: SchemaGetter.transform((seconds) => seconds * 1000),
  encode: SchemaGetter.transform((millis) => millis / 1000)
}))

/**
 * Of the windows of the API key, the one with the fewest remaining requests, from the `X-RateLimit-*` headers of a
 * response (SPEC §8). During a ban, `remaining` is 0.
 */
export const RateLimitState = Schema.Struct({
  /** Requests per window. */
  limit: Schema.FiniteFromString,
  /** The remaining requests of the window. */
  remaining: Schema.FiniteFromString,
  /** When the window, or a ban, ends. Then all requests of the limit remain again. */
  resetAt: EpochSeconds
}).pipe(
  Schema.encodeKeys({ limit: "x-ratelimit-limit", remaining: "x-ratelimit-remaining", resetAt: "x-ratelimit-reset" })
)
export interface RateLimitState extends Schema.Schema.Type<typeof RateLimitState> {}

const readHeaders = Schema.decodeUnknownOption(RateLimitState)

/** Returns `None` without valid headers, or if they show the limits of the client's address (scope `address`). */
export const rateLimitOf = (headers: Headers.Headers): Option.Option<RateLimitState> =>
  headers["x-ratelimit-scope"] === "address" ? Option.none() : readHeaders(headers)

/**
 * Returns the milliseconds until no limit is used up any more. Prefers the seconds in `RateLimit` to the timestamp in
 * `X-RateLimit-Reset`, because the clocks of the client and the service may differ.
 */
export const millisUntilReset = (headers: Headers.Headers, { resetAt }: RateLimitState, now: number): number => {
  const seconds = [...(headers["ratelimit"] ?? "").matchAll(/;r=0;t=(\d+)/g)].map(([, t]) => Number(t))
  return seconds.length > 0 ? Math.max(...seconds) * 1000 : Math.max(0, DateTime.toEpochMillis(resetAt) - now)
}
