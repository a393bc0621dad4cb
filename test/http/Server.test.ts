/** Tests that requests see the references that layers around the service set. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, ErrorReporter, Layer, Metric } from "effect"
import { memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const broken = new Error("broken")

const brokenPets = memoryWith(() => ({ list: () => Effect.die(broken) }))

it.live("An ErrorReporter and a metric registry around the service get the failures of operations on pets", () => {
  const registry = new Map()
  const reported: Array<unknown> = []
  const reporter = ErrorReporter.make(({ cause }) => void reported.push(Cause.squash(cause)))
  return Effect.gen(function*() {
    const { call, unlimitedKey } = yield* Service
    const { status } = yield* call("/v1/pets", { key: yield* unlimitedKey })
    assert.strictEqual(status, 500)
    assert.deepStrictEqual(reported, [broken])
    const metrics = yield* Effect.provideService(Metric.snapshot, Metric.MetricRegistry, registry)
    const requests = metrics.find(({ id }) => id === "http.server.request.duration")
    assert.deepInclude(requests?.attributes, { "http.response.status_code": "500", region: "eu" })
  }).pipe(Effect.provide(Layer.provide(
    service(brokenPets),
    Layer.mergeAll(
      ErrorReporter.layer([reporter]),
      Layer.succeed(Metric.MetricRegistry, registry),
      Layer.succeed(Metric.CurrentMetricAttributes, { region: "eu" })
    )
  )))
})
