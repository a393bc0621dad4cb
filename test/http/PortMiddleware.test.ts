import { assert, it } from "@effect/vitest"
import { Cause, Effect, ErrorReporter, Layer, Logger, Metric } from "effect"
import { NotFound } from "../../src/api/Errors.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertError } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

it.live("A defect is a logged 500, also an error of the API, for the ErrorReporter and the metrics around the service", () => {
  const broken = new NotFound({ message: "from a defect" })
  const registry = new Map()
  const [reported, logged]: [Array<unknown>, Array<string>] = [[], []]
  const reporters = ErrorReporter.layer([ErrorReporter.make(({ cause }) => void reported.push(Cause.squash(cause)))])
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  const store = memoryWith(() => ({ list: () => Effect.die(broken) }))
  const region = Layer.succeed(Metric.CurrentMetricAttributes, { region: "eu" })
  const measured = Layer.merge(Layer.succeed(Metric.MetricRegistry, registry), region)
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    const response = yield* call("/v1/pets", { key: yield* newKey })
    assertError(response, 500, "internal_error")
    const requestId = `"requestId":"${response.headers.get("x-request-id")}"`
    const texts = [`"level":"ERROR"`, "The request failed", "from a defect", requestId]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
    assert.deepStrictEqual(reported, [broken])
    const metrics = yield* Effect.provideService(Metric.snapshot, Metric.MetricRegistry, registry)
    const requests = metrics.find(({ id }) => id === "petstore_http_server_request_duration_seconds")
    assert.deepInclude(requests?.attributes, { "http.response.status_code": "500", region: "eu" })
  }).pipe(Effect.provide(Layer.provide(service(store, {}, { loggers }), Layer.merge(reporters, measured))))
})

it.live("A defect behind the operation is a logged 500 with the Error body", () => {
  const logged: Array<string> = []
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  const die = () => Effect.die(new Error("from the limiter"))
  const limiter = { charge: die, peek: die, unban: die, counting: Effect.succeed("own" as const) }
  return Effect.gen(function*() {
    const { call } = yield* Service
    const { status, text } = yield* call("/v1/pets")
    assert.deepInclude(JSON.parse(text), { code: "internal_error", status })
    assert.match(logged.join("\n"), /The request failed.*from the limiter/)
  }).pipe(Effect.provide(service(Layer.merge(memory, Layer.succeed(RateLimiter, limiter)), {}, { loggers })))
})
