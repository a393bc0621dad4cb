/** The metrics of a client: its attempts, its waits for a limit or a retry, and its limits. */
import { Clock, Effect, Metric, Option } from "effect"
import * as Brand from "../api/Brand.ts"
import type { RateLimitState } from "../api/RateLimitState.ts"

const attempts = Metric.counter(`${Brand.name}_client_attempts_total`, {
  description: "Requests sent, by client and by the status of the response, or none.",
  incremental: true
})
const waits = Metric.histogram(`${Brand.name}_client_wait_duration_seconds`, {
  description: "Waits before a request, by client and cause: limit or retry.",
  boundaries: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400]
})
const limit = Metric.gauge(`${Brand.name}_client_limit_requests`, {
  description: "The limit of the window with the fewest remaining requests."
})
const remaining = Metric.gauge(`${Brand.name}_client_remaining_requests`, {
  description: "The remaining requests of that window."
})

export type ClientMetrics = ReturnType<typeof makeMetrics>

export const makeMetrics = (client: string) => ({
  attempted: (status: number | undefined) =>
    Metric.update(Metric.withAttributes(attempts, { client, status: String(status ?? "none") }), 1),

  limited: Option.match({
    onNone: () => Effect.void,
    onSome: (state: RateLimitState) =>
      Effect.andThen(
        Metric.update(Metric.withAttributes(limit, { client }), state.limit),
        Metric.update(Metric.withAttributes(remaining, { client }), state.remaining)
      )
  }),

  /**
   * Records a wait, rounded up to whole milliseconds, in the metric, in the debug log and as an event of the call's
   * span. Then sleeps for that time.
   */
  wait: Effect.fnUntraced(function*(cause: "limit" | "retry", waitMs: number, reason: string) {
    const ms = Math.ceil(waitMs)
    const clock = yield* Clock.Clock
    const attributes = { [`${Brand.name}.wait.ms`]: ms, [`${Brand.name}.wait.cause`]: reason }
    yield* Effect.currentSpan.pipe(
      Effect.tap((span) => Effect.sync(() => span.event("wait", clock.monotonicTimeNanosUnsafe(), attributes))),
      Effect.ignore
    )
    yield* Effect.logDebug(`Waiting ${ms} ms: ${reason}.`)
    yield* Metric.update(Metric.withAttributes(waits, { client, cause }), ms / 1_000)
    yield* Effect.sleep(ms)
  })
})
