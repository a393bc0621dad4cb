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
import { type Headers, HttpClient, HttpClientError, HttpClientResponse } from "effect/http"
import { TestClock } from "effect/testing"
import { createServer } from "node:http"
import {
  AdminClient,
  isRetryable,
  type Options,
  PetstoreClient,
  PetstoreClientError,
  withMetadata
} from "../../src/client/Clients.ts"
import { ApiKeys, layerTest, PetRepository, RateLimiter, TestService } from "../../src/testing.ts"

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

/** The tag of the reason of a `PetstoreClientError`, or the tag of another error. */
const reasonOf = (error: { readonly _tag: string }): string =>
  error instanceof PetstoreClientError ? error.reason._tag : error._tag

const rex = { name: "Rex", categoryId: 9223372036854775807n, status: "available" } as const

describe("PetstoreClient with the service in memory", () => {
  it.effect("creates, gets and lists pets with 64-bit integers without loss of digits", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const added = yield* client.create(rex)
      assert.deepStrictEqual(added, { id: 1n, ...rex })
      // oxlint-disable-next-line typescript/no-deprecated -- it is served until 2030
      assert.deepStrictEqual(yield* client.get(1n), added)
      assert.deepStrictEqual(yield* client.list(), { pets: [added] })
      assert.deepStrictEqual(yield* client.list({ status: "sold" }), { pets: [] })
      const repository = yield* PetRepository
      assert.deepStrictEqual(yield* repository.find(1n), Option.some(added))
      assert.deepStrictEqual(
        yield* client.rateLimit,
        Option.some({ limit: 60, remaining: 56, resetAt: DateTime.makeUnsafe(60_000) })
      )
    }).pipe(Effect.provide(layerTest())))

  it.effect("streams all pets and requests only the pages that the consumer needs", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const repository = yield* PetRepository
      for (let i = 0; i < 25; i++) {
        yield* repository.create({ name: `${i}`, categoryId: 1n, ...i % 2 === 0 && { status: "sold" } })
      }
      const sold = yield* Stream.runCollect(client.all({ status: "sold", pageSize: 4 }))
      assert.deepStrictEqual([...sold].map(({ name }) => Number(name)), Array.from({ length: 13 }, (_, i) => 2 * i))
      const before = yield* client.rateLimit
      const firstSeven = yield* Stream.runCollect(Stream.take(client.all({ pageSize: 5 }), 7))
      assert.lengthOf([...firstSeven], 7)
      const used = Option.getOrThrow(before).remaining - Option.getOrThrow(yield* client.rateLimit).remaining
      assert.strictEqual(used, 2)
    }).pipe(Effect.provide(layerTest())))

  it.effect("fails with an error whose tag names the kind", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      // oxlint-disable-next-line typescript/no-deprecated -- it is served until 2030
      const missing = yield* Effect.flip(client.get(7n))
      assert.deepInclude(missing, { _tag: "NotFound", status: 404, code: "not_found" })
      const first = yield* client.create(rex, { idempotencyKey: "a" })
      assert.deepStrictEqual(yield* client.create(rex, { idempotencyKey: "a" }), first, "a replay is the same pet")
      const reused = yield* Effect.flip(client.create({ ...rex, name: "Tom" }, { idempotencyKey: "a" }))
      assert.strictEqual(reused._tag, "IdempotencyKeyReused")
      const invalid = yield* Effect.flip(client.create({ ...rex, name: "\u0000" }))
      assert.strictEqual(reasonOf(invalid), "InvalidInput")
      const long = yield* Effect.flip(client.create({ ...rex, name: "x".repeat(1_001) }))
      assert.strictEqual(reasonOf(long), "InvalidInput")
      const apiKeys = yield* ApiKeys
      const { keys: [key] } = yield* apiKeys.list({ limit: 1 })
      yield* apiKeys.revoke(key?.id ?? "")
      assert.strictEqual((yield* Effect.flip(client.list()))._tag, "InvalidApiKey")
    }).pipe(Effect.provide(layerTest())))

  it.effect("adds the request id and the duration to wait to errors of the service", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      yield* client.list()
      const error = yield* Effect.flip(client.list())
      assert.deepInclude(error, { _tag: "RateLimitExceeded", retryAfter: Duration.seconds(60) })
      assert.match("requestId" in error ? error.requestId ?? "" : "", /^[0-9a-f-]{36}$/)
    }).pipe(Effect.provide(layerTest({ limits: { perMinute: 1, perDay: 9 }, retry: { maxWait: 0 } }))))

  it.effect("treats optional fields that are undefined as absent", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const rest = { status: undefined, limit: undefined, cursor: undefined }
      const added = yield* client.create({ name: "Rex", categoryId: 1n, status: undefined })
      assert.deepStrictEqual(added, { id: 1n, name: "Rex", categoryId: 1n })
      assert.deepStrictEqual((yield* client.list(rest)).pets, [added])
      assert.lengthOf([...yield* Stream.runCollect(client.all({ status: undefined }))], 1)
    }).pipe(Effect.provide(layerTest())))

  it.effect("rejects a limit outside 1 to 100 without a request", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      for (const limit of [0, 101, 1.5]) {
        assert.strictEqual(reasonOf(yield* Effect.flip(client.list({ limit }))), "InvalidInput")
      }
      assert.strictEqual(
        reasonOf(yield* Effect.flip(Stream.runDrain(client.all({ pageSize: 101 })))),
        "InvalidInput"
      )
      assert.isEmpty(yield* service.sentRequests)
    }).pipe(Effect.provide(layerTest())))

  it.effect("returns the metadata of a success on demand", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const create = withMetadata(client.create(rex, { idempotencyKey: "a" }))
      const [first, created] = yield* create
      const [second, replayed] = yield* create
      assert.deepStrictEqual(second, first)
      assert.deepInclude(created, { status: 201, isReplayed: false })
      assert.deepInclude(replayed, { status: 201, isReplayed: true })
      assert.match(created.requestId ?? "", /^[0-9a-f-]{36}$/)
      assert.strictEqual(replayed.rateLimit?.remaining, 58)
      assert.strictEqual(created.headers["location"], "/v1/pets/1")
    }).pipe(Effect.provide(layerTest())))

  it.effect("takes headers for one call, and names itself in User-Agent", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      const [, { requestId }] = yield* withMetadata(client.list({}, { headers: { "x-request-id": "order-17" } }))
      assert.strictEqual(requestId, "order-17")
      yield* client.list()
      const [first, second] = yield* service.sentRequests
      assert.strictEqual(first?.headers["x-request-id"], "order-17")
      assert.isUndefined(second?.headers["x-request-id"])
      assert.match(second?.headers["user-agent"] ?? "", /^petstore-client\/\d+\.\d+\.\d+$/)
    }).pipe(Effect.provide(layerTest())))

  it.effect("gives each test layer a service of its own, also when layers are nested", () =>
    Effect.gen(function*() {
      const outer = yield* PetstoreClient
      yield* outer.create(rex)
      const inner = Effect.flatMap(PetstoreClient, (client) => client.list())
      assert.lengthOf((yield* Effect.provide(inner, layerTest({ plan: "pro" }))).pets, 0)
      assert.lengthOf((yield* outer.list()).pets, 1)
    }).pipe(Effect.provide(layerTest())))

  for (const [calls, concurrency] of [[150, 1], [150, 10], [150, 150], [300, 300]] as const) {
    it.effect(`causes no ban with ${calls} calls, ${concurrency} at once, on a key of 60 requests a minute`, () =>
      Effect.gen(function*() {
        const client = yield* PetstoreClient
        const call = Effect.match(client.list(), { onSuccess: () => "ok", onFailure: ({ _tag }) => _tag })
        const { result, seconds } = yield* runWithTestClock(Effect.replicateEffect(call, calls, { concurrency }))
        assert.isAtLeast(result.filter((one) => one === "ok").length, concurrency === 1 ? calls : 120)
        if (concurrency === 1) assert.isAtMost(seconds, 180)
        const apiKeys = yield* ApiKeys
        const { keys: [key] } = yield* apiKeys.list({ limit: 1 })
        const limiter = yield* RateLimiter
        assert.isUndefined((yield* limiter.peek(`key:${key?.id}`, { perMinute: 60, perDay: 1000 })).bannedUntil)
        // A call that would wait more than two minutes fails with RateLimitExceeded; a ban would give ApiKeyBanned.
        assert.isEmpty(result.filter((one) => one !== "ok" && one !== "RateLimitExceeded"))
      }).pipe(Effect.provide(layerTest())))
  }

  it.effect("sends the trace context of the call to the service", () =>
    Effect.gen(function*() {
      const traced = stubClient([pets])
      yield* Effect.flatMap(PetstoreClient, (client) => client.list()).pipe(
        Effect.withSpan("outer"),
        Effect.provide(traced.layer)
      )
      assert.match(traced.requests[0]?.["traceparent"] ?? "", /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/)
    }))

  it.effect("fails with the 429 without waiting when the wait would exceed the max wait", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      yield* client.list()
      const { result, seconds } = yield* runWithTestClock(Effect.flip(client.list()))
      assert.deepInclude(result, { _tag: "RateLimitExceeded", status: 429 })
      assert.isAtMost(seconds, 2)
      // Further calls get the cached rejection, without a request, so they cause no ban.
      for (let i = 0; i < 100; i++) assert.strictEqual((yield* Effect.flip(client.list()))._tag, "RateLimitExceeded")
      const { keys: [key] } = yield* Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.list({ limit: 1 }))
      const limiter = yield* RateLimiter
      assert.isUndefined((yield* limiter.peek(`key:${key?.id}`, { perMinute: 1, perDay: 9 })).bannedUntil)
      yield* TestClock.adjust("61 seconds")
      yield* client.list()
    }).pipe(Effect.provide(layerTest({ limits: { perMinute: 1, perDay: 9 }, retry: { maxWait: "30 seconds" } }))))
})

/**
 * A client whose requests get `responses` in order, and the last one from then on. "nothing" is a failed connection,
 * "never" a response that does not arrive.
 */
const stubClient = (responses: ReadonlyArray<Response | "nothing" | "never">, options: Partial<Options> = {}) => {
  /** The headers of each request. */
  const requests: Array<Headers.Headers> = []
  const client = HttpClient.make((request) =>
    Effect.suspend(() => {
      const response = responses[Math.min(requests.length, responses.length - 1)]
      requests.push(request.headers)
      if (response === "never" || response === undefined) return Effect.never
      return response === "nothing"
        ? Effect.fail(
          new HttpClientError.HttpClientError({
            reason: new HttpClientError.TransportError({ request, cause: new Error("connection refused") })
          })
        )
        : Effect.succeed(HttpClientResponse.fromWeb(request, response.clone()))
    })
  )
  const layer = PetstoreClient.layerHttp({ baseUrl: "http://petstore.test", apiKey: Redacted.make("psk"), ...options })
  const http = Layer.succeed(HttpClient.HttpClient, client)
  return { requests, http, layer: Layer.provide(layer, http) }
}

const json = (status: number, body: string, headers: Record<string, string> = {}) =>
  new Response(body, { status, headers: { "content-type": "application/json", ...headers } })
const pets = json(200, "[]")
const created = json(201, `{"id":1,"name":"Rex","categoryId":1}`, { location: "/v1/pets/1" })
const busy = json(503, `{"code":"service_unavailable","message":"-","status":503}`, { "retry-after": "3" })
const fault = json(500, `{"code":"internal_error","message":"-","status":500}`)

const withClient = <A, E>(
  { layer }: ReturnType<typeof stubClient>,
  use: (client: PetstoreClient["Service"]) => Effect.Effect<A, E>
) => runWithTestClock(Effect.flatMap(PetstoreClient, use)).pipe(Effect.provide(layer))

const limits = (remaining: number, scope: "key" | "address") => ({
  "x-ratelimit-limit": "60",
  "x-ratelimit-remaining": String(remaining),
  "x-ratelimit-reset": "60",
  "x-ratelimit-scope": scope
})

describe("The limits that a client knows", () => {
  it.effect("are those of its key: it ignores what a response says of its address", () =>
    Effect.gen(function*() {
      const late = json(408, `{"code":"request_timeout","message":"-","status":408}`, limits(0, "address"))
      const stub = stubClient([json(200, "[]", limits(500, "key")), late, json(200, "[]", limits(499, "key"))])
      const { result } = yield* withClient(stub, (client) =>
        Effect.gen(function*() {
          yield* client.list()
          yield* Effect.flip(client.get(1n)).pipe(Effect.ignore)
          return yield* client.rateLimit
        }))
      assert.strictEqual(Option.getOrThrow(result).remaining, 499)
    }))

  it.effect("belong to one client: another client of the key knows nothing of them", () =>
    Effect.gen(function*() {
      const rejection = json(429, `{"code":"rate_limit_exceeded","message":"-","status":429}`, { "retry-after": "30" })
      const stub = stubClient([rejection], { retry: { times: 0, maxWait: 0 } })
      const call = Effect.flatMap(PetstoreClient, (client) => Effect.flip(client.list()))
      yield* Effect.andThen(call, call).pipe(Effect.provide(stub.layer))
      assert.lengthOf(stub.requests, 1)
      yield* Effect.provide(call, Layer.fresh(stub.layer))
      assert.lengthOf(stub.requests, 2)
    }))

  it.effect("show in the debug log and in the span of the call, which has all its attempts, that it waits", () =>
    Effect.gen(function*() {
      const stub = stubClient([busy, pets])
      const messages: Array<string> = []
      const logger = Logger.make(({ message }) => {
        messages.push(String(message))
      })
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      yield* withClient(stub, (client) => client.list()).pipe(
        Effect.provide(Logger.layer([logger])),
        Effect.provideService(References.MinimumLogLevel, "Debug"),
        Effect.withTracer(tracer)
      )
      assert.match(messages.join(), /Waiting 3000 ms: status 503/)
      const events = spans.flatMap((span) => span.events).filter(([name]) => name === "wait")
      assert.deepStrictEqual(events.map(([, , attributes]) => attributes), [
        { "petstore.wait.ms": 3000, "petstore.wait.cause": "status 503" }
      ])
      const [call, ...attempts] = spans
      assert.strictEqual(call?.name, "PetstoreClient.list")
      assert.lengthOf(attempts, 2)
      for (const { parent } of attempts) assert.strictEqual(Option.getOrUndefined(parent)?.spanId, call?.spanId)
    }))
})

describe("PetstoreClient with a failing service", () => {
  it.effect("retries after a 503 or no response, and sends the same idempotency key on each retry of a create", () =>
    Effect.gen(function*() {
      const list = stubClient([busy, "nothing", busy, pets])
      const { result, seconds } = yield* withClient(list, (client) => client.list())
      assert.deepStrictEqual(result, { pets: [] })
      assert.isAtLeast(seconds, 6)
      const create = stubClient(["nothing", busy, created])
      yield* withClient(create, (client) => client.create({ name: "Rex", categoryId: 1n }))
      assert.lengthOf(create.requests, 3)
      const keys = new Set(create.requests.map((headers) => headers["idempotency-key"]))
      assert.strictEqual(keys.size, 1)
      assert.match([...keys].join(), /^[0-9a-f-]{36}$/)
    }))

  it.effect("does not retry a 400, and stops after the max number of retries", () =>
    Effect.gen(function*() {
      const invalid = json(400, `{"code":"invalid_request","message":"-","status":400}`)
      const cases: ReadonlyArray<readonly [Response, string, requests: number, Partial<Options>?]> = [
        [invalid, "InvalidRequest", 1],
        [fault, "InternalError", 6],
        [busy, "ServiceUnavailable", 3, { retry: { times: 2 } }]
      ]
      for (const [response, tag, requests, options] of cases) {
        const stub = stubClient([response], options)
        assert.strictEqual((yield* withClient(stub, (client) => Effect.flip(client.list()))).result._tag, tag)
        assert.lengthOf(stub.requests, requests)
      }
    }))

  it.effect("reports the reason and a message for each kind of failed call", () =>
    Effect.gen(function*() {
      const html = new Response("<html>Bad Gateway</html>", { status: 502, headers: { "content-type": "text/html" } })
      const brokenOff = new Response(
        new ReadableStream({
          pull: (controller) => controller.error(new Error("cut"))
        }),
        { status: 200, headers: { "content-type": "application/json" } }
      )
      const page = new Response("<html>Welcome</html>", { status: 200, headers: { "content-type": "text/html" } })
      const other = json(200, `{"hello":"world"}`)
      const failures: ReadonlyArray<readonly [Response | "nothing" | "never", string, RegExp]> = [
        ["nothing", "Unreachable", /^GET http:\/\/petstore\.test\/v1\/pets: .*connection refused/],
        ["never", "Unreachable", /No response within 5s/],
        [html, "UnexpectedResponse", /returned 502 with text\/html/],
        [page, "UnexpectedResponse", /returned 200 with text\/html/],
        [other, "UnexpectedResponse", /returned 200 with application\/json/],
        [json(404, "{}"), "UnexpectedResponse", /returned 404/],
        [brokenOff, "Unreachable", /incomplete|terminated|cut/]
      ]
      for (const [response, reason, message] of failures) {
        const client = stubClient([response], { timeout: "5 seconds", retry: { times: 1 } })
        const { result } = yield* withClient(client, ({ list }) => Effect.flip(list()))
        assert.strictEqual(reasonOf(result), reason)
        assert.match(result.message, message)
      }
    }))

  it.effect("reports an error of a later version of the service with its status, code, message and request id", () =>
    Effect.gen(function*() {
      const later = (status: number, code: string) =>
        json(status, `{"code":"${code}","message":"Later.","status":${status}}`, {
          "x-request-id": "7",
          "retry-after": "3"
        })
      // An unknown code, an unknown status, and known errors that `list` does not declare.
      const responses = [[400, "later"], [403, "forbidden"], [404, "not_found"], [409, "conflict"]] as const
      for (const [status, code] of responses) {
        const { result } = yield* withClient(stubClient([later(status, code)]), ({ list }) => Effect.flip(list()))
        const reason = result._tag === "PetstoreClientError" ? result.reason : result
        const facts = { code, message: "Later.", status, requestId: "7", retryAfter: Duration.seconds(3) }
        assert.deepInclude(reason, { _tag: "UndeclaredError", ...facts })
        assert.strictEqual(result.message, "Later.")
        assert.isFalse(isRetryable(result))
      }
    }))

  it.effect("says whether the same call can succeed later", () =>
    Effect.gen(function*() {
      const notFound = json(404, `{"code":"not_found","message":"-","status":404}`)
      const teapot = json(599, `{"code":"later","message":"-","status":599}`)
      const responses: ReadonlyArray<Response | "nothing"> = ["nothing", busy, fault, teapot, notFound]
      for (const response of responses) {
        const { result } = yield* withClient(stubClient([response]), ({ list }) => Effect.flip(list()))
        assert.strictEqual(isRetryable(result), response !== notFound, result.message)
      }
    }))

  it.effect("takes a timeout and retries by a Schedule for one call", () =>
    Effect.gen(function*() {
      const stub = stubClient(["never"])
      const { seconds } = yield* withClient(stub, ({ list }) =>
        Effect.flip(list({}, { timeout: "1 second", retry: { schedule: Schedule.spaced("10 seconds"), times: 2 } })))
      assert.lengthOf(stub.requests, 3)
      assert.strictEqual(seconds, 23)
    }))

  it.effect("asks an effect for the API key before each attempt", () =>
    Effect.gen(function*() {
      let rotations = 0
      const stub = stubClient([fault, pets], { apiKey: Effect.sync(() => Redacted.make(`psk_${++rotations}`)) })
      yield* withClient(stub, ({ list }) => list())
      assert.deepStrictEqual(stub.requests.map(({ authorization }) => authorization), ["Bearer psk_1", "Bearer psk_2"])
    }))

  it.effect("dies when the layer is built with a base URL that is not http or https", () =>
    Effect.gen(function*() {
      for (const baseUrl of ["no address", "ftp://petstore.test", ""]) {
        const built = Effect.provide(PetstoreClient, stubClient([pets], { baseUrl }).layer)
        assert.match(String(yield* Effect.exit(built)), /baseUrl: expected an http or https URL/)
      }
    }))

  it.effect("reports failures from AdminClient too, which retries only GET requests after a fault", () =>
    Effect.gen(function*() {
      const call = <A, E>(
        responses: ReadonlyArray<Response | "nothing">,
        use: (client: AdminClient["Service"]) => Effect.Effect<A, E>
      ) => {
        const { http, requests } = stubClient(responses)
        const layer = AdminClient.layerHttp({ baseUrl: "http://petstore.test", token: Redacted.make("adm") })
        return runWithTestClock(Effect.flatMap(AdminClient, use)).pipe(
          Effect.provide(Layer.provide(layer, http)),
          Effect.map(({ result }) => ({ result, requests: requests.length }))
        )
      }
      for (const first of ["nothing", busy] as const) {
        const { result } = yield* call([first, json(200, "[]")], ({ list }) => list())
        assert.deepStrictEqual(result, { keys: [] })
      }
      // The service may have issued the key before the 503.
      const page = new Response("<html>", { status: 200, headers: { "content-type": "text/html" } })
      const unissued = [["nothing", "Unreachable"], [busy, "ServiceUnavailable"], [page, "UnexpectedResponse"]] as const
      for (const [response, reason] of unissued) {
        const { requests, result } = yield* call(
          [response],
          ({ issue }) => Effect.flip(issue({ name: "a", plan: "free" }))
        )
        assert.deepStrictEqual([reasonOf(result), requests], [reason, 1])
      }
    }))

  it.effect("can be interrupted while a call is queued", () =>
    Effect.gen(function*() {
      const silent = stubClient(["never"])
      yield* Effect.gen(function*() {
        const client = yield* PetstoreClient
        yield* Effect.forkChild(client.list())
        yield* TestClock.adjust("1 second")
        const { seconds } = yield* runWithTestClock(Effect.timeoutOption(client.list(), "2 seconds"))
        assert.isAtMost(seconds, 3)
      }).pipe(Effect.provide(silent.layer))
      assert.lengthOf(silent.requests, 1)
    }))

  it.effect("does not run the timeouts of queued calls one after another", () =>
    Effect.gen(function*() {
      const silent = stubClient(["never"], { timeout: "1 second", retry: { times: 0 } })
      const calls = (client: PetstoreClient["Service"]) =>
        Effect.replicateEffect(Effect.flip(client.list()), 100, { concurrency: "unbounded" })
      assert.isAtMost((yield* withClient(silent, calls)).seconds, 9)
    }))

  it.effect("reports a 429 that is not of the Petstore service as unexpected, also when the rejection is cached", () =>
    Effect.gen(function*() {
      const page = new Response("<html>", {
        status: 429,
        headers: { "content-type": "text/html", "retry-after": "300" }
      })
      const proxy = stubClient([page])
      const { result } = yield* withClient(
        proxy,
        (client) => Effect.replicateEffect(Effect.flip(client.list()), 2)
      )
      assert.deepStrictEqual(result.map(reasonOf), ["UnexpectedResponse", "UnexpectedResponse"])
      assert.lengthOf(proxy.requests, 1)
    }))

  it.effect("reports the last failure, and waits until a date in Retry-After", () =>
    Effect.gen(function*() {
      const restarted = stubClient([busy, "nothing"], { retry: { times: 2 } })
      const { result } = yield* withClient(restarted, (client) => Effect.flip(client.list()))
      assert.strictEqual(reasonOf(result), "Unreachable")
      const dated = stubClient([json(503, "{}", { "retry-after": "Thu, 01 Jan 1970 00:00:40 GMT" }), pets])
      assert.isAtLeast((yield* withClient(dated, (client) => client.list())).seconds, 30)
    }))

  it.live("reports a closed port, TLS to a plain HTTP server, and a foreign server", () =>
    Effect.gen(function*() {
      const server = createServer((_, response) => response.end("hello"))
      const port = yield* Effect.callback<number>((resume) => {
        server.listen(0, "127.0.0.1", () => {
          const address = server.address()
          resume(Effect.succeed(typeof address === "object" ? address?.port ?? 0 : 0))
        })
      })
      yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
      const at = (baseUrl: string) =>
        Effect.flatMap(PetstoreClient, (client) => Effect.flip(client.list())).pipe(
          Effect.provide(PetstoreClient.layer({ baseUrl, apiKey: Redacted.make("psk"), retry: { times: 0 } }))
        )
      assert.match((yield* at("http://127.0.0.1:1")).message, /^GET http:\/\/127\.0\.0\.1:1\/v1\/pets: .+/)
      assert.match((yield* at(`https://127.0.0.1:${port}`)).message, /SSL|TLS|packet/i)
      for (const path of ["", "/", "/v1", "/v1/"]) {
        const { message } = yield* at(`http://127.0.0.1:${port}${path}`)
        assert.include(message, `GET http://127.0.0.1:${port}/v1/pets returned 200 with no type`)
      }
    }))
})
