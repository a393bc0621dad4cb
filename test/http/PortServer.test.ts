/** Tests that requests see the references that layers around the service set, and what becomes of a defect. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, ErrorReporter, Layer, Logger, Metric, Redacted } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { NotFound } from "../../src/api/Errors.ts"
import { layerService, RateLimiter } from "../../src/testing.ts"
import { memoryWith } from "../support/Databases.ts"
import { unlimitedKeyOptions } from "../support/Process.ts"
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
    const requests = metrics.find(({ id }) => id === "petstore_http_server_request_duration_seconds")
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

it.effect("An error of the API that dies is a logged 500, and not its own status", () => {
  const logged: Array<string> = []
  const store = memoryWith(() => ({ find: () => Effect.die(new NotFound({ message: "from a defect" })) }))
  return Effect.gen(function*() {
    const client = yield* HttpClient.HttpClient
    const { key } = yield* (yield* ApiKeys).issue(unlimitedKeyOptions)
    const get = HttpClientRequest.get("http://petstore.test/v1/pets/1")
    const response = yield* client.execute(HttpClientRequest.bearerToken(get, Redacted.value(key)))
    assert.strictEqual(response.status, 500)
    assert.include(yield* response.text, "internal_error")
    const texts = ["The request failed", "from a defect", `"requestId":"${response.headers["x-request-id"]}"`]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
  }).pipe(Effect.provide(
    Layer.provideMerge(layerService, Layer.merge(store, RateLimiter.layerMemory)).pipe(
      Layer.provideMerge(Logger.layer([Logger.map(Logger.formatJson, (line) => void logged.push(line))]))
    )
  ))
})
