/** Tests of the typed clients, against the service's own handlers and against stubbed responses. */
import { assert, describe, it } from "@effect/vitest"
import {
  DateTime,
  Duration,
  Effect,
  Fiber,
  Layer,
  Logger,
  Option,
  Redacted,
  References,
  Schedule,
  Stream,
  Tracer
} from "effect"
import { type Headers, HttpClient, HttpClientError, HttpClientResponse, HttpServer } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup, HttpApiTest } from "effect/http-api"
import { TestClock } from "effect/testing"
import {
  AdminClient,
  isRetryable,
  type Options,
  PetstoreClient,
  PetstoreClientError,
  withMetadata
} from "../../src/client/Clients.ts"
import { ApiKeys, layerMemory, layerService, layerTest, RateLimiter, TestService } from "../../src/testing.ts"

/** Runs `effect` and advances the test clock by one second at a time until it ends. `seconds` is the time it took. */
const runWithTestClock = Effect.fnUntraced(function*<A, E, R>(effect: Effect.Effect<A, E, R>) {
  const fiber = yield* Effect.forkChild(effect)
  let seconds = 0
  while (fiber.pollUnsafe() === undefined) {
    yield* TestClock.adjust("1 second")
    seconds++
  }
  return { seconds, result: yield* Fiber.join(fiber) }
})

/** Fails unless the key of the test layer has no ban. */
const assertNoBan = Effect.gen(function*() {
  const [apiKeys, limiter] = [yield* ApiKeys, yield* RateLimiter]
  const { keys: [key] } = yield* apiKeys.list({ limit: 1 })
  assert.isUndefined((yield* limiter.peek(`key:${key?.id}`, { perMinute: 60, perDay: 1000 })).bannedUntil)
})

/** The tag of the reason of a `PetstoreClientError`, or the tag of another error. */
const reasonOf = (error: { readonly _tag: string }): string =>
  error instanceof PetstoreClientError ? error.reason._tag : error._tag

const rex = { name: "Rex", categoryId: 9223372036854775807n, status: "available" } as const

describe("PetstoreClient with the service in memory", () => {
  it.effect("creates, gets, lists and streams pets without rounding their integers", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const created = yield* Effect.forEach([1, 2, 3, 4, 5], () => client.create(rex))
      assert.deepStrictEqual(created.map(({ categoryId }) => categoryId), Array<bigint>(5).fill(rex.categoryId))
      assert.deepStrictEqual(yield* client.get(5n), { id: 5n, ...rex })
      const first = yield* client.list({ limit: 3, status: "available" })
      const last = yield* client.list(first.next)
      assert.deepStrictEqual([...first.pets, ...last.pets], created)
      assert.isUndefined(last.next)
      assert.deepStrictEqual(yield* Stream.runCollect(client.all({ status: "available", pageSize: 2 })), created)
      assert.deepStrictEqual(yield* Stream.runCollect(client.all({ cursor: 2n, pageSize: 2 })), created.slice(2))
    }).pipe(Effect.provide(layerTest())))

  it.effect("fails with the tag, status, code and request id of each error of the service", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      const named = client.create(rex, { idempotencyKey: "a" })
      yield* client.create({ ...rex, name: "Tom" }, { idempotencyKey: "a" })
      const failures = [
        [client.get(7n), "NotFound", 404, "not_found"],
        [named, "IdempotencyKeyReused", 422, "idempotency_key_reused"],
        [Effect.andThen(service.revokeKey, client.list()), "InvalidApiKey", 401, "invalid_api_key"]
      ] as const
      for (const [call, _tag, status, code] of failures) {
        const failure = yield* Effect.flip<unknown, Effect.Error<typeof call>, never>(call)
        assert.containsSubset(failure, { _tag, status, code })
        assert.match(String("requestId" in failure && failure.requestId), /^[\da-f-]{36}$/)
      }
    }).pipe(Effect.provide(layerTest())))

  it.effect("sends no request if an argument is invalid", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      const errors = yield* Effect.all([
        ...[0, 101, 1.5].map((limit) => Effect.flip(client.list({ limit }))),
        Effect.flip(Stream.runDrain(client.all({ pageSize: 101 }))),
        Effect.flip(client.create({ ...rex, name: "\u0000" })),
        Effect.flip(client.create({ ...rex, name: "x".repeat(1_001) }))
      ])
      assert.deepStrictEqual(errors.map(reasonOf), errors.map(() => "InvalidInput"))
      assert.isEmpty(yield* service.sentRequests)
    }).pipe(Effect.provide(layerTest())))

  it.effect("omits undefined fields from a request, and returns the limits of the latest response", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      assert.deepStrictEqual(yield* client.rateLimit, Option.none())
      const added = yield* client.create({ name: "Rex", categoryId: 1n, status: undefined })
      assert.deepStrictEqual(added, { id: 1n, name: "Rex", categoryId: 1n })
      assert.deepStrictEqual((yield* client.list({ status: undefined, limit: undefined })).pets, [added])
      const limits = { limit: 60, remaining: 58, resetAt: DateTime.makeUnsafe(60_000) }
      assert.deepStrictEqual(yield* client.rateLimit, Option.some(limits))
    }).pipe(Effect.provide(layerTest())))

  it.effect("returns the metadata of a response with withMetadata", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const create = withMetadata(client.create(rex, { idempotencyKey: "a" }))
      const [[first, created], [second, replayed]] = [yield* create, yield* create]
      assert.deepStrictEqual(second, first)
      assert.deepInclude(created, { status: 201, isReplayed: false })
      assert.deepInclude(replayed, { status: 201, isReplayed: true })
      assert.match(created.requestId ?? "", /^[0-9a-f-]{36}$/)
      assert.strictEqual(replayed.rateLimit?.remaining, 58)
      assert.strictEqual(created.headers["location"], "/v1/pets/1")
    }).pipe(Effect.provide(layerTest())))

  it.effect("sends the headers of one call, and its own User-Agent", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* client.list({}, { headers: { "x-request-id": "order-17" } })
      yield* client.list()
      const headers = (yield* service.sentRequests).map((request) => request.headers)
      assert.deepStrictEqual(headers.map((each) => each["x-request-id"]), ["order-17", undefined])
      assert.match(headers[1]?.["user-agent"] ?? "", /^petstore-client\/\d+\.\d+\.\d+$/)
    }).pipe(Effect.provide(layerTest())))

  it.effect("keeps the limits of several keys apart", () =>
    Effect.gen(function*() {
      const keys = yield* ApiKeys
      const clients = yield* Effect.forEach(["free", "pro"] as const, (plan) =>
        Effect.flatMap(Effect.orDie(keys.issue({ name: plan, plan })), ({ key }) =>
          PetstoreClient.make({ baseUrl: "http://petstore.test", apiKey: key })))
      const limitOf = ({ list, rateLimit }: PetstoreClient["Service"]) =>
        Effect.map(Effect.andThen(list(), rateLimit), (state) =>
          Option.getOrThrow(state).limit)
      assert.deepStrictEqual(yield* Effect.forEach(clients, limitOf), [60, 300])
    }).pipe(Effect.provide(Layer.provideMerge(layerService, layerMemory))))

  it.effect("starts a separate service for each test layer, even for a nested one", () =>
    Effect.gen(function*() {
      const outer = yield* PetstoreClient
      yield* outer.create(rex)
      const inner = Effect.flatMap(PetstoreClient, (client) => client.list())
      assert.lengthOf((yield* Effect.provide(inner, layerTest({ plan: "pro" }))).pets, 0)
      assert.lengthOf((yield* outer.list()).pets, 1)
    }).pipe(Effect.provide(layerTest())))

  it.effect.each([[150, 1, 0], [150, 10, 0], [300, 300, 0], [300, 300, 3]] as const)(
    "causes no ban with %s calls, %s at once, of which %s lose a response, on a key of 60 requests a minute",
    ([calls, concurrency, lost]) =>
      Effect.gen(function*() {
        const [client, service] = [yield* PetstoreClient, yield* TestService]
        if (lost > 0) {
          yield* client.list()
          yield* service.becomeSlow("1 second")
          yield* service.loseResponses(lost)
        }
        const call = Effect.match(client.list(), { onSuccess: () => "ok", onFailure: ({ _tag }) => _tag })
        const { result, seconds } = yield* runWithTestClock(Effect.replicateEffect(call, calls, { concurrency }))
        assert.isAtLeast(result.filter((one) => one === "ok").length, concurrency === 1 ? calls : 120 - 2 * lost)
        if (concurrency === 1) assert.isAtMost(seconds, 180)
        // A call that would wait more than two minutes fails with RateLimitExceeded; a ban would give ApiKeyBanned.
        assert.isEmpty(result.filter((one) => one !== "ok" && one !== "RateLimitExceeded"))
        const rejected = (yield* service.sentRequests).filter(({ status }) => status === 429)
        assert.isAtMost(rejected.length, 1 + lost)
        yield* assertNoBan
      }).pipe(Effect.provide(layerTest()))
  )

  it.effect("fails at once, without a request, when a wait would exceed maxWait", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* client.list()
      for (let i = 0; i < 1_000; i++) {
        assert.deepInclude(yield* Effect.flip(client.list()), { _tag: "RateLimitExceeded", status: 429 })
      }
      assert.lengthOf(yield* service.sentRequests, 2)
      yield* assertNoBan
      // Once a minute, one call sends its request.
      yield* TestClock.adjust("61 seconds")
      yield* Effect.replicateEffect(Effect.flip(client.list()), 9)
      assert.lengthOf(yield* service.sentRequests, 3)
    }).pipe(Effect.provide(layerTest({ limits: { perMinute: 1, perDay: 1 }, retry: { maxWait: "30 seconds" } }))))
})

type Reply = Response | "nothing" | "never"

/**
 * A client whose requests get `responses` in order, and the last one from then on. "nothing" is a failed connection,
 * "never" a response that does not arrive.
 */
const stubClient = (responses: ReadonlyArray<Reply>, options: Partial<Options> = {}) => {
  /** The headers of each request. */
  const requests: Array<Headers.Headers> = []
  const client = HttpClient.make((request) =>
    Effect.suspend(() => {
      const response = responses[Math.min(requests.length, responses.length - 1)]
      requests.push(request.headers)
      if (response === "never" || response === undefined) return Effect.never
      if (response !== "nothing") return Effect.succeed(HttpClientResponse.fromWeb(request, response.clone()))
      const reason = new HttpClientError.TransportError({ request, cause: new Error("connection refused") })
      return Effect.fail(new HttpClientError.HttpClientError({ reason }))
    })
  )
  const layer = PetstoreClient.layerHttp({ baseUrl: "http://petstore.test", apiKey: Redacted.make("psk"), ...options })
  const http = Layer.succeed(HttpClient.HttpClient, client)
  return { requests, http, layer: Layer.provide(layer, http) }
}

const json = (status: number, body: string | ReadableStream, headers: Record<string, string> = {}) =>
  new Response(body, { status, headers: { "content-type": "application/json", ...headers } })
const html = (status: number, headers: Record<string, string> = {}) =>
  new Response("<html>", { status, headers: { "content-type": "text/html", ...headers } })
const error = (status: number, code: string, headers: Record<string, string> = {}) =>
  json(status, `{"code":"${code}","message":"Later.","status":${status}}`, headers)
const pets = json(200, "[]")
const created = json(201, `{"id":1,"name":"Rex","categoryId":1}`, { location: "/v1/pets/1" })
const busy = error(503, "service_unavailable", { "retry-after": "3" })
const fault = error(500, "internal_error")

const withClient = <A, E>(
  { layer }: ReturnType<typeof stubClient>,
  use: (client: PetstoreClient["Service"]) => Effect.Effect<A, E>
) => runWithTestClock(Effect.flatMap(PetstoreClient, use)).pipe(Effect.provide(layer))

/** Returns the error of a list. */
const failureOf = (stub: ReturnType<typeof stubClient>) =>
  Effect.map(withClient(stub, ({ list }) => Effect.flip(list())), ({ result }) => result)

const limits = (remaining: number, scope: "key" | "address") => ({
  "x-ratelimit-limit": "60",
  "x-ratelimit-remaining": String(remaining),
  "x-ratelimit-reset": "60",
  "x-ratelimit-scope": scope
})

describe("The limits of a client", () => {
  it.effect("ignore responses that show the limits of the address", () =>
    Effect.gen(function*() {
      const late = error(408, "request_timeout", limits(0, "address"))
      const stub = stubClient([json(200, "[]", limits(500, "key")), late, json(200, "[]", limits(499, "key"))])
      const { result } = yield* withClient(stub, ({ list, rateLimit }) =>
        Effect.andThen(Effect.andThen(list(), list()), rateLimit))
      assert.strictEqual(Option.getOrThrow(result).remaining, 499)
      assert.lengthOf(stub.requests, 3)
    }))

  it.effect("are the reason for a wait, which is logged at level debug", () =>
    Effect.gen(function*() {
      const messages: Array<string> = []
      yield* withClient(stubClient([busy, pets]), (client) => client.list()).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void messages.push(String(message)))])),
        Effect.provideService(References.MinimumLogLevel, "Debug")
      )
      assert.match(messages.join(), /Waiting 3000 ms: status 503/)
    }))
})

/** Runs `effect` and returns its spans, in the order in which they began. */
const spansOf = Effect.fnUntraced(function*<A, E, R>(effect: Effect.Effect<A, E, R>) {
  const spans: Array<Tracer.NativeSpan> = []
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      spans.push(span)
      return span
    }
  })
  yield* Effect.withTracer(effect, tracer)
  return spans
})

const parentOf = ({ parent }: Tracer.NativeSpan) => Option.getOrUndefined(parent)?.spanId

describe("The spans of a client", () => {
  it.effect("show a call with its waits, and each attempt with its resend count", () =>
    Effect.gen(function*() {
      const headers = { "x-request-id": "7" }
      const stub = stubClient([busy, busy, json(200, "[]", headers)])
      const [call, ...attempts] = yield* spansOf(withClient(stub, ({ list }) => list({ limit: 5, cursor: 7n })))
      assert(call?.name === "PetstoreClient.list")
      const attributes = { "petstore.limit": 5, "petstore.cursor": 7n, "petstore.request_id": "7" }
      assert.deepStrictEqual(Object.fromEntries(call.attributes), attributes)
      const facts = { "petstore.wait.ms": 3000, "petstore.wait.cause": "status 503" }
      assert.deepStrictEqual(call.events.map(([name, , details]) => [name, details]), [["wait", facts], [
        "wait",
        facts
      ]])
      assert.deepStrictEqual(attempts.map(({ kind }) => kind), ["client", "client", "client"])
      const resends = attempts.map((attempt) => attempt.attributes.get("http.request.resend_count"))
      assert.deepStrictEqual(resends, [undefined, 1, 2])
      for (const attempt of attempts) assert.strictEqual(parentOf(attempt), call.spanId)
      // The service gets the trace context of the attempt.
      const traceparent = stub.requests[0]?.["traceparent"] ?? ""
      assert.match(traceparent, new RegExp(`^00-${call.traceId}-${attempts[0]?.spanId}-0[01]$`))
    }))

  it.effect("show a stream, the calls of its pages, and their attempts, with layerTest too", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* service.insertPets(rex, rex, rex)
      const [all, ...spans] = yield* spansOf(Stream.runDrain(client.all({ pageSize: 2 })))
      assert(all?.name === "PetstoreClient.all")
      const calls = spans.filter(({ name }) => name === "PetstoreClient.list")
      assert.deepStrictEqual(calls.map(parentOf), [all.spanId, all.spanId])
      const attempts = spans.filter(({ kind }) => kind === "client")
      assert.deepStrictEqual(attempts.map(parentOf), calls.map(({ spanId }) => spanId))
    }).pipe(Effect.provide(layerTest())))
})

const cut = new ReadableStream({ pull: (controller) => controller.error(new Error("cut")) })

/** Failures, the tag of each, and whether the same call can succeed later. */
const failures: ReadonlyArray<readonly [reply: Reply, tag: string, message: RegExp, isRetryable: boolean]> = [
  ["nothing", "Unreachable", /^GET http:\/\/petstore\.test\/v1\/pets: .*connection refused/, true],
  ["never", "Unreachable", /No response within 5s/, true],
  [json(200, cut), "Unreachable", /incomplete|terminated|cut/, true],
  [busy, "ServiceUnavailable", /Later/, true],
  [fault, "InternalError", /Later/, true],
  [error(400, "invalid_request"), "InvalidRequest", /Later/, false],
  [html(502), "UnexpectedResponse", /returned 502 with text\/html/, true],
  [html(429, { "retry-after": "1" }), "UnexpectedResponse", /returned 429 with text\/html/, true],
  [html(200), "UnexpectedResponse", /returned 200 with text\/html/, false],
  [json(200, `{"hello":"world"}`), "UnexpectedResponse", /returned 200 with application\/json/, false],
  [json(404, "{}"), "UnexpectedResponse", /returned 404/, false],
  [error(599, "later"), "UndeclaredError", /Later/, true]
]

describe("PetstoreClient with a failing service", () => {
  it.effect("retries after Retry-After, repeats a create with its idempotency key, and fails with the last error", () =>
    Effect.gen(function*() {
      const list = stubClient([busy, "nothing", busy, pets])
      const { result, seconds } = yield* withClient(list, (client) => client.list())
      assert.deepStrictEqual(result, { pets: [] })
      assert.isAtLeast(seconds, 6)
      const dated = stubClient([json(503, "{}", { "retry-after": "Thu, 01 Jan 1970 00:00:40 GMT" }), pets])
      assert.isAtLeast((yield* withClient(dated, (client) => client.list())).seconds, 30)
      const failing = stubClient([busy, busy, busy, busy, busy, fault])
      assert.strictEqual(reasonOf(yield* failureOf(failing)), "InternalError")
      assert.lengthOf(failing.requests, 6)
      const create = stubClient(["nothing", busy, created])
      yield* withClient(create, (client) => client.create({ name: "Rex", categoryId: 1n }))
      const [first, ...retries] = create.requests.map((headers) => headers["idempotency-key"])
      assert.match(first ?? "", /^[0-9a-f-]{36}$/)
      assert.deepStrictEqual(retries, [first, first])
    }))

  it.effect("fails with a reason and a message, and retries a call that can succeed later", () =>
    Effect.gen(function*() {
      for (const [reply, reason, message, canSucceed] of failures) {
        const stub = stubClient([reply], { retry: { attemptTimeout: "5 seconds", times: 2 } })
        const failure = yield* failureOf(stub)
        assert.strictEqual(reasonOf(failure), reason)
        assert.match(failure.message, message)
        if (failure._tag === "PetstoreClientError" && failure.reason._tag === "Unreachable") {
          assert.strictEqual(failure.reason.cause === undefined, reply === "never")
        }
        assert.strictEqual(isRetryable(failure), canSucceed, failure.message)
        assert.lengthOf(stub.requests, canSucceed ? 3 : 1)
      }
    }))

  it.effect("fails with status, code, message and request id for an error that it does not know", () =>
    Effect.gen(function*() {
      const headers = { "x-request-id": "7", "retry-after": "3" }
      // An unknown code, an unknown status, and known errors that `list` does not declare.
      const responses = [[400, "later"], [403, "forbidden"], [404, "not_found"], [409, "conflict"]] as const
      for (const [status, code] of responses) {
        const failure = yield* failureOf(stubClient([error(status, code, headers)]))
        const reason = failure._tag === "PetstoreClientError" ? failure.reason : failure
        assert.deepInclude(reason, { _tag: "UndeclaredError", code, message: "Later.", status })
        assert.deepInclude(failure, { requestId: "7", retryAfter: Duration.seconds(3) })
        assert.strictEqual(failure.message, "Later.")
        assert.isFalse(isRetryable(failure))
      }
    }))

  it.effect("accepts an attempt timeout and a retry Schedule for one call", () =>
    Effect.gen(function*() {
      const stub = stubClient(["never"])
      const { seconds } = yield* withClient(stub, ({ list }) =>
        Effect.flip(list({}, {
          retry: { attemptTimeout: "1 second", schedule: Schedule.spaced("10 seconds"), times: 2 }
        })))
      assert.lengthOf(stub.requests, 3)
      assert.strictEqual(seconds, 23)
    }))

  it.effect("runs the effect of the API key before each attempt", () =>
    Effect.gen(function*() {
      let rotations = 0
      const stub = stubClient([fault, pets], { apiKey: Effect.sync(() => Redacted.make(`psk_${++rotations}`)) })
      yield* withClient(stub, ({ list }) => list())
      assert.deepStrictEqual(stub.requests.map(({ authorization }) => authorization), ["Bearer psk_1", "Bearer psk_2"])
    }))

  it.effect("accepts a base URL with or without /v1, and dies if it is not an http or https URL", () =>
    Effect.gen(function*() {
      for (const path of ["", "/", "/v1", "/v1/"]) {
        const failure = yield* failureOf(stubClient([html(200)], { baseUrl: `https://petstore.test${path}` }))
        assert.include(failure.message, "GET https://petstore.test/v1/pets returned 200 with text/html")
      }
      for (const baseUrl of ["no address", "ftp://petstore.test", ""]) {
        const built = Effect.provide(PetstoreClient, stubClient([pets], { baseUrl }).layer)
        assert.match(String(yield* Effect.exit(built)), /baseUrl: expected an http or https URL/)
      }
    }))

  it.effect("retries only the GET requests of AdminClient after a fault", () =>
    Effect.gen(function*() {
      const call = <A, E>(reply: Reply, use: (client: AdminClient["Service"]) => Effect.Effect<A, E>) => {
        const { http, requests } = stubClient([reply, pets])
        const layer = AdminClient.layerHttp({ baseUrl: "http://petstore.test", token: Redacted.make("adm") })
        return runWithTestClock(Effect.flatMap(AdminClient, use)).pipe(
          Effect.provide(Layer.provide(layer, http)),
          Effect.map(({ result }) => ({ result, requests: requests.length }))
        )
      }
      // The service may have issued the key before the 503.
      for (const [reply, reason] of [["nothing", "Unreachable"], [busy, "ServiceUnavailable"]] as const) {
        assert.deepStrictEqual(yield* call(reply, ({ list }) => list()), { result: { keys: [] }, requests: 2 })
        const issue = call(reply, (client) => Effect.flip(client.issue({ name: "a", plan: "free" })))
        const { requests, result } = yield* issue
        assert.deepStrictEqual([reasonOf(result), requests], [reason, 1])
      }
    }))

  it.effect("fails every call at its timeout, and then sends nothing more", () =>
    Effect.gen(function*() {
      for (const reply of ["never", busy] as const) {
        const silent = stubClient([reply], { timeout: "2500 millis" })
        const { result, seconds } = yield* withClient(
          silent,
          (client) => Effect.replicateEffect(Effect.flip(client.list()), 100, { concurrency: "unbounded" })
        )
        assert.isAtMost(seconds, 3)
        if (reply === "never") assert.deepStrictEqual(new Set(result.map(reasonOf)), new Set(["Unreachable"]))
        const sent = silent.requests.length
        yield* TestClock.adjust("10 minutes")
        assert.lengthOf(silent.requests, sent)
      }
    }))

  it.effect("fails with an error that another HttpApi can declare", () =>
    Effect.gen(function*() {
      const failure = yield* failureOf(stubClient([error(403, "later", { "x-request-id": "7", "retry-after": "3" })]))
      assert.instanceOf(failure, PetstoreClientError)
      const ShelterApi = HttpApi.make("shelter").add(
        HttpApiGroup.make("shelter", { topLevel: true }).add(
          HttpApiEndpoint.get("available", "/available", { error: PetstoreClientError })
        )
      )
      const handlers = HttpApiBuilder.group(
        ShelterApi,
        "shelter",
        (group) => group.handle("available", () => Effect.fail(failure))
      )
      const shelter = yield* Effect.provide(HttpApiTest.groups(ShelterApi, ["shelter"]), handlers)
      const { status } = yield* shelter.available({ responseMode: "response-only" })
      assert.strictEqual(status, 502)
      const received = yield* Effect.flip(shelter.available())
      assert.deepStrictEqual(received, failure)
      assert.deepInclude(failure, { message: "Later.", requestId: "7", retryAfter: Duration.seconds(3) })
    }).pipe(Effect.provide(HttpServer.layerServices)))
})
