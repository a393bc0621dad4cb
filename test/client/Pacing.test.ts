/** Tests the order and the records of calls that wait, and that a long job within a Free plan gets no ban. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Metric, Redacted } from "effect"
import { HttpClient, HttpClientResponse } from "effect/http"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { AdminClient, PetstoreClient } from "../../src/client/ClientExports.ts"
import { layerAdmin, layerTest, TestService } from "../../src/testing.ts"

/** A client of a service that allows two requests a second, and the headers `x-caller` of its requests. */
const makeClient = Effect.gen(function*() {
  const callers: Array<string | undefined> = []
  const http = HttpClient.make((request) =>
    Effect.sync(() => {
      const caller = callers.push(request.headers["x-caller"])
      const remaining = caller % 2
      const headers = {
        "content-type": "application/json",
        "x-ratelimit-limit": "2",
        "x-ratelimit-remaining": String(remaining),
        "x-ratelimit-reset": "0",
        ratelimit: `"second";r=${remaining};t=1`
      }
      return HttpClientResponse.fromWeb(request, new Response("[]", { headers }))
    })
  )
  const client = yield* PetstoreClient.make({ baseUrl: "http://petstore.test", apiKey: Redacted.make("psk") }).pipe(
    Effect.provideService(HttpClient.HttpClient, http)
  )
  return { callers, call: (caller: number) => client.list({}, { headers: { "x-caller": String(caller) } }) }
})

/** Three callers, which each call again as soon as they have their response. */
const callInTurns = Effect.gen(function*() {
  const { call, callers } = yield* makeClient
  const repeat = (caller: number) => Effect.replicateEffect(call(caller), 2, { discard: true })
  yield* Effect.forEach([1, 2, 3], repeat, { concurrency: "unbounded", discard: true })
  return callers.join()
})

describe("Calls that wait for a limit", () => {
  it.effect("are sent in order of arrival, by TestClock", () =>
    Effect.gen(function*() {
      const calling = yield* Effect.forkChild(callInTurns)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(yield* Fiber.join(calling), "1,2,3,1,2,3")
    }))

  it.live("are sent in order of arrival, by the real clock", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* callInTurns, "1,2,3,1,2,3")
    }).pipe(Effect.timeout("10 seconds")))

  it.effect("share each window of a key of the Free plan: 16 concurrent loops make progress alike", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const counts = new Map(Array.from({ length: 16 }, (_, index) => [index, 0]))
      const loop = (index: number) =>
        client.create({ name: "Rex", categoryId: 1n }, { timeout: "1 hour" }).pipe(
          Effect.tap(() => Effect.sync(() => counts.set(index, (counts.get(index) ?? 0) + 1))),
          Effect.forever
        )
      yield* Effect.forEach(counts.keys(), (index) => Effect.forkChild(loop(index)), { discard: true })
      yield* TestClock.adjust("6 minutes")
      const created = [...counts.values()]
      assert.isAtLeast(Math.min(...created), Math.max(...created) - 1, created.join())
      // Five windows of 60 requests, of which each begins up to a second late.
      assert.isAtLeast(Math.min(...created), Math.floor(5 * 60 / 16))
    }).pipe(Effect.provide(layerTest())))

  it.effect("fail at once when a pause begins that ends after their maxWait, and leave the line when interrupted", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* client.list()
      yield* service.exhaustLimit
      const patient = yield* Effect.forkChild(client.list())
      const interrupted = yield* Effect.forkChild(client.list())
      const next = yield* Effect.forkChild(client.list())
      const hasty = yield* Effect.forkChild(Effect.flip(client.list({}, { retry: { maxWait: "5 seconds" } })))
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(hasty))._tag, "RateLimitExceeded")
      interrupted.interruptUnsafe()
      yield* TestClock.adjust("1 minute")
      yield* Fiber.join(patient)
      yield* Fiber.join(next)
      assert.deepStrictEqual((yield* service.sentRequests).map(({ status }) => status), [200, 429, 200, 200])
    }).pipe(Effect.provide(layerTest())))
})

/** Returns the state of the only series of the metric `id` that has `attributes`. */
const stateOf = (id: string, attributes: object) =>
  Effect.map(Metric.snapshot, (snapshots) => {
    const found = snapshots.filter((each) =>
      each.id === id &&
      Object.entries(attributes).every(([name, value]) =>
        Object.entries(each.attributes ?? {}).some(([key, of]) => key === name && of === value)
      )
    )
    return found.length === 1 ? found[0]?.state : assert.fail(`${found.length} of ${id}`)
  })

it.effect("records an attempt without a response with the status none, and a wait for a limit as such", () =>
  Effect.gen(function*() {
    const [client, service] = [yield* PetstoreClient, yield* TestService]
    yield* service.loseResponses(1)
    const listing = yield* Effect.forkChild(Effect.all([client.list(), client.list()]))
    yield* TestClock.adjust("2 minutes")
    yield* Fiber.join(listing)
    const own = { client: "PetstoreClient" }
    const attempts = yield* stateOf("petstore_client_attempts_total", { ...own, status: "none" })
    assert.containsSubset(attempts, { count: 1 })
    const waits = yield* stateOf("petstore_client_wait_duration_seconds", { ...own, cause: "limit" })
    assert.containsSubset(waits, { count: 1 })
  }).pipe(
    Effect.provide(layerTest({ limits: { perMinute: 2, perDay: 9 } })),
    Effect.provideService(Metric.MetricRegistry, new Map())
  ))

it.effect("records attempts, waits and what is left of the limits as metrics of each client", () =>
  Effect.gen(function*() {
    const [client, service, admin] = [yield* PetstoreClient, yield* TestService, yield* AdminClient]
    yield* admin.list()
    yield* service.failNext(new ServiceUnavailable({ retryAfter: Duration.seconds(3) }))
    const listing = yield* Effect.forkChild(client.list())
    yield* TestClock.adjust("1 minute")
    yield* Fiber.join(listing)
    const own = { client: "PetstoreClient" }
    const expected = [
      ["attempts_total", { ...own, status: "503" }, { count: 1 }],
      ["attempts_total", { ...own, status: "200" }, { count: 1 }],
      ["attempts_total", { client: "AdminClient", status: "200" }, { count: 1 }],
      ["wait_duration_seconds", { ...own, cause: "retry" }, { count: 1, sum: 3 }],
      ["limit_requests", own, { value: 60 }],
      ["remaining_requests", own, { value: 59 }]
    ] as const
    for (const [name, attributes, state] of expected) {
      assert.containsSubset(yield* stateOf(`petstore_client_${name}`, attributes), state)
    }
  }).pipe(
    Effect.provide(Layer.provideMerge(layerAdmin, layerTest())),
    Effect.provideService(Metric.MetricRegistry, new Map())
  ))
