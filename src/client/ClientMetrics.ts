/** What an operator sees of a client: metrics of its attempts, waits and limits, and the waits in logs and spans. */
import { Clock, Effect, Metric } from "effect"
import * as Brand from "../api/Brand.ts"
import type { RateLimitState } from "./Pacing.ts"

const name = `${Brand.name}_client`

const attempts = Metric.counter(`${name}_attempts_total`, {
  description: "Requests that the client has sent, by client and by the status of the response, or none.",
  incremental: true
})
const waits = Metric.histogram(`${name}_wait_duration_seconds`, {
  description: "Waits before a request, by client and cause: limit or retry.",
  boundaries: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400]
})
const limit = Metric.gauge(`${name}_rate_limit_requests`, {
  description: "The most restrictive limit of the API key, from the latest response."
})
const remaining = Metric.gauge(`${name}_rate_limit_remaining_requests`, {
  description: "The requests that remain of the most restrictive limit, from the latest response."
})

const update = (client: string) => <A>(metric: Metric.Metric<A, unknown>, value: A, labels: object = {}) =>
  Metric.update(Metric.withAttributes(metric, { client, ...labels }), value)

export type ClientMetrics = ReturnType<typeof makeMetrics>

export const makeMetrics = (client: string) => {
  const record = update(client)
  return {
    attempted: (status: number | undefined) => record(attempts, 1, { status: String(status ?? "none") }),
    limited: (state: RateLimitState) => Effect.andThen(record(limit, state.limit), record(remaining, state.remaining)),
    /** Records a wait that begins now: as a metric, in the log, and as an event of the call's span. */
    waits: Effect.fnUntraced(function*(cause: "limit" | "retry", waitMs: number, reason: string) {
      const ms = Math.ceil(waitMs)
      const clock = yield* Clock.Clock
      const attributes = { [`${Brand.name}.wait.ms`]: ms, [`${Brand.name}.wait.cause`]: reason }
      yield* Effect.currentSpan.pipe(
        Effect.tap((span) => Effect.sync(() => span.event("wait", clock.monotonicTimeNanosUnsafe(), attributes))),
        Effect.ignore
      )
      yield* Effect.logDebug(`Waiting ${ms} ms: ${reason}.`)
      yield* record(waits, ms / 1_000, { cause })
    })
  }
}
