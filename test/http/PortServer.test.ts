import { assert, it } from "@effect/vitest"
import { Cause, Effect, ErrorReporter, Layer, Logger, Metric } from "effect"
import { NotFound } from "../../src/api/Errors.ts"
import { assertError } from "../support/Assertions.ts"
import { memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

it.live("A defect is a logged 500, also an error of the API, for the ErrorReporter and the metrics around the service", () => {
  const broken = new NotFound({ message: "from a defect" })
  const registry = new Map()
  const [reported, logged]: [Array<unknown>, Array<string>] = [[], []]
  const reporter = ErrorReporter.make(({ cause }) => void reported.push(Cause.squash(cause)))
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    const response = yield* call("/v1/pets", { key: yield* newKey })
    assertError(response, 500, "internal_error")
    const texts = ["The request failed", "from a defect", `"requestId":"${response.headers.get("x-request-id")}"`]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
    assert.deepStrictEqual(reported, [broken])
    const metrics = yield* Effect.provideService(Metric.snapshot, Metric.MetricRegistry, registry)
    const requests = metrics.find(({ id }) => id === "petstore_http_server_request_duration_seconds")
    assert.deepInclude(requests?.attributes, { "http.response.status_code": "500", region: "eu" })
  }).pipe(Effect.provide(Layer.provide(
    service(memoryWith(() => ({ list: () => Effect.die(broken) })), {}, { loggers }),
    Layer.mergeAll(
      ErrorReporter.layer([reporter]),
      Layer.succeed(Metric.MetricRegistry, registry),
      Layer.succeed(Metric.CurrentMetricAttributes, { region: "eu" })
    )
  )))
})
