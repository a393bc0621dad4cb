/** Tests the gauges of requests in flight and queued. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric } from "effect"
import { TestClock } from "effect/testing"
import { AdmissionControl } from "../../../src/http/admission/AdmissionControl.ts"

/** The values of the gauges: requests in flight, and queued. */
const gauges = Effect.map(Metric.snapshot, (metrics) =>
  ["in_flight", "queued"].map((name) => {
    const metric = metrics.find(({ id }) => id === `http_server_requests_${name}`)
    return metric?.type === "Gauge" ? Number(metric.state.value) : undefined
  }))

describe("The gauges of requests", () => {
  it.effect("show the requests in flight and queued, as of the last second", () =>
    Effect.gen(function*() {
      const { all } = yield* AdmissionControl
      while (!all.mustQueue) all.enter()
      for (let i = 0; i < 3; i++) all.startOrQueue(() => {})
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* gauges, [2_500, 3])
      for (let i = 0; i < 2_500; i++) all.leave()
      yield* Effect.promise(() => new Promise(setImmediate))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* gauges, [0, 0])
    }).pipe(Effect.provide(AdmissionControl.layer)))
})
