import { assert, describe, it } from "@effect/vitest"
import {
  Arbitrary,
  Config,
  ConfigProvider,
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
import { FetchHttpClient, type Headers, HttpClient, HttpClientError, HttpClientResponse } from "effect/http"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { NewPet } from "../../src/api/Pets.ts"
import { AdminClient, isRetryable, type Options, PetstoreClient, withMetadata } from "../../src/client/ClientExports.ts"
import { layerTest, TestService } from "../../src/testing.ts"

/** Runs `effect` and advances the test clock by one second at a time until it ends. `seconds` is the time it took. */
const runWithTestClock = Effect.fnUntraced(function*<A, E, R>(effect: Effect.Effect<A, E, R>) {
  const fiber = yield* Effect.forkChild(effect)
  let seconds = 0
  while (fiber.pollUnsafe() === undefined) {
    yield* TestClock.adjust("1 second")
    assert.isBelow(++seconds, 1_000, "the effect has no end")
  }
  return { seconds, result: yield* Fiber.join(fiber) }
})

const withDebugLog = <A, E, R>(effect: Effect.Effect<A, E, R>, logger: Logger.Logger<unknown, void>) =>
  effect.pipe(Effect.provide(Logger.layer([logger])), Effect.provideService(References.MinimumLogLevel, "Debug"))

const reasonOf = ({ _tag, reason }: { readonly _tag: string; readonly reason?: { readonly _tag: string } }) =>
  reason?._tag ?? _tag

type Step = Effect.Effect<unknown, unknown>

const testOnService = (
  name: string,
  test: (client: PetstoreClient["Service"], service: TestService["Service"]) => Generator<Step, void, never>,
  options: Parameters<typeof layerTest>[0] = {}
) =>
  it.effect(name, () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* Effect.gen(() => test(client, service))
    }).pipe(Effect.provide(layerTest(options))))

const baseUrl = "http://petstore.test"
const rex = { name: "Rex", categoryId: 9223372036854775807n, status: "available" } as const

describe("PetstoreClient with the service in memory", () => {
  testOnService("creates, gets, lists and streams pets without rounding their integers", function*(client) {
    const created = yield* Effect.replicateEffect(client.create(rex), 5)
    assert.deepStrictEqual(yield* client.get(5n), { id: 5n, ...rex })
    const first = yield* client.list({ limit: 3, status: "available" })
    const last = yield* client.list(first.next)
    assert.deepStrictEqual([...first.pets, ...last.pets], created)
    assert.isUndefined(last.next)
    assert.deepStrictEqual(yield* Stream.runCollect(client.all({ status: "available", pageSize: 2 })), created)
    assert.deepStrictEqual(yield* Stream.runCollect(client.all({ ...first.next, pageSize: 2 })), created.slice(3))
    const added = yield* client.create({ name: "Tom", categoryId: 1n, status: undefined })
    assert.deepStrictEqual(added, { id: 6n, name: "Tom", categoryId: 1n })
    assert.deepStrictEqual((yield* client.list({ status: undefined, limit: undefined })).pets, [...created, added])
  })

  testOnService("fails with the tag, status, code and request id of each error", function*(client, service) {
    yield* client.create({ ...rex, name: "Tom" }, { idempotencyKey: "a" })
    const failures = [
      [client.get(7n), "NotFound", 404, "not_found"],
      [client.create(rex, { idempotencyKey: "a" }), "IdempotencyKeyReused", 422, "idempotency_key_reused"],
      [Effect.andThen(service.revokeKey, client.list()), "InvalidApiKey", 401, "invalid_api_key"]
    ] as const
    for (const [call, _tag, status, code] of failures) {
      const failure = yield* Effect.flip<unknown, Effect.Error<typeof call>, never>(call)
      assert.containsSubset(failure, { _tag, status, code })
      assert.match(String("requestId" in failure && failure.requestId), /^[\da-f-]{36}$/)
    }
  })

  testOnService("sends no request if an argument is invalid", function*(client, service) {
    const errors = yield* Effect.all([
      ...[0, 101, 1.5].map((limit) => Effect.flip(client.list({ limit }))),
      Effect.flip(Stream.runDrain(client.all({ pageSize: 101 }))),
      ...["\u0000", "x".repeat(1_001)].map((name) => Effect.flip(client.create({ ...rex, name }))),
      ...["a b", "", "a\nb", "ä", "x".repeat(256)].map((idempotencyKey) =>
        Effect.flip(client.create(rex, { idempotencyKey }))
      ),
      Effect.flip(client.list({}, { headers: { "x-name": "a\nsecret" } }))
    ])
    assert.notInclude(String(errors.at(-1)), "secret")
    assert.deepStrictEqual(errors.map(reasonOf), errors.map(() => "InvalidInput"))
    assert.isEmpty(yield* service.sentRequests)
  })

  testOnService("has the metadata of each page in pages, which a stored cursor resumes", function*(client, service) {
    const pets = yield* service.insertPets(rex, rex, rex, rex, rex)
    const pages = yield* Stream.runCollect(client.pages({ pageSize: 2, status: "available" }))
    assert.deepStrictEqual(pages.flatMap((page) => page.pets), pets)
    assert.deepStrictEqual(pages.map(({ metadata }) => metadata.rateLimit?.remaining), [59, 58, 57])
    assert.strictEqual(new Set(pages.map(({ metadata }) => metadata.requestId)).size, 3)
    const [, { requestId }] = yield* withMetadata(Stream.runDrain(client.all()))
    assert.match(requestId ?? "", /^[0-9a-f-]{36}$/)
    const resumed = yield* Stream.runCollect(client.all({ ...pages[0]?.next, pageSize: 2 }))
    assert.deepStrictEqual(resumed, pets.slice(2))
  })

  testOnService("returns the metadata of a response with withMetadata, and the latest limits", function*(client) {
    assert.deepStrictEqual(yield* client.rateLimit, Option.none())
    const create = withMetadata(client.create(rex, { idempotencyKey: "a" }))
    const [[first, created], [second, replayed]] = [yield* create, yield* create]
    assert.deepStrictEqual(second, first)
    assert.deepInclude(created, { status: 201, isReplayed: false })
    assert.deepInclude(replayed, { status: 201, isReplayed: true })
    assert.match(created.requestId ?? "", /^[0-9a-f-]{36}$/)
    assert.containsSubset(replayed.rateLimit, { limit: 300, remaining: 298, resetAt: { epochMilliseconds: 60_000 } })
    assert.deepStrictEqual(Option.getOrUndefined(yield* client.rateLimit), replayed.rateLimit)
    assert.strictEqual(created.headers["location"], "/v1/pets/1")
  }, { plan: "pro" })

  testOnService("sends a call's headers, a User-Agent, and a UUID as idempotency key", function*(client, service) {
    const options = { headers: { "x-request-id": "order-17" } }
    yield* client.list({}, options)
    yield* Effect.all([client.create(rex), client.create(rex)])
    yield* Stream.runDrain(client.all({ pageSize: 1 }, options))
    const [list, create, , ...pages] = yield* service.sentRequests
    assert.deepStrictEqual([list, ...pages].map((sent) => sent?.headers["x-request-id"]), Array(3).fill("order-17"))
    assert.include(create?.headers, { "x-request-id": "own", "user-agent": "petstore-client/1.0.0" })
    assert.match(create?.headers["idempotency-key"] ?? "", /^[0-9a-f-]{36}$/)
    yield* Stream.runDrain(client.all())
    assert.strictEqual((yield* service.sentRequests).at(-1)?.path, "/v1/pets?limit=100")
  }, { headers: { "x-request-id": "own" } })

  testOnService("sends the application's name in User-Agent beside its own", function*(client, service) {
    yield* client.list()
    yield* client.list({}, { headers: { "user-agent": "worker/1" } })
    const agents = (yield* service.sentRequests).map(({ headers }) => headers["user-agent"])
    assert.deepStrictEqual(agents, ["shop/2.1 petstore-client/1.0.0", "worker/1 petstore-client/1.0.0"])
  }, { headers: { "User-Agent": "shop/2.1" } })

  testOnService("logs each wait, and sends its trace with an event", function*(client, service) {
    yield* service.failNext(new ServiceUnavailable({ retryAfter: Duration.millis(2_001) }))
    const messages: Array<string> = []
    const spans: Array<Tracer.NativeSpan> = []
    const span: Tracer.Tracer["span"] = (options) =>
      spans[spans.push(new Tracer.NativeSpan(options)) - 1] ?? assert.fail()
    const logger = Logger.make(({ logLevel, message }) => void messages.push(`${logLevel} ${String(message)}`))
    const list = runWithTestClock(client.list({ limit: 2 }, { headers: { "x-request-id": "7" } }))
    yield* Effect.withTracer(withDebugLog(list, logger), Tracer.make({ span }))
    assert.match(messages.join(), /Debug Waiting 3000 ms: status 503/)
    const [call = assert.fail(), attempt] = spans
    assert.deepStrictEqual([...call.attributes], [["petstore.limit", 2], ["petstore.request.id", "7"]])
    const others = Effect.all([Effect.ignore(client.get(7n)), client.create(rex, { idempotencyKey: "a" })])
    yield* Effect.withTracer(others, Tracer.make({ span }))
    const attributes = [["get", "pet.id", 7n], ["create", "idempotency_key", "a"]] as const
    for (const [operation, attribute, value] of attributes) {
      const found = spans.find(({ name }) => name === `PetstoreClient.${operation}`)
      assert.strictEqual(found?.attributes.get(`petstore.${attribute}`), value)
    }
    const wait = { "petstore.wait.ms": 3000, "petstore.wait.cause": "status 503" }
    assert.deepStrictEqual(call.events.map(([name, , facts]) => [name, facts]), [["wait", wait]])
    const [request] = yield* service.sentRequests
    assert.match(request?.headers["traceparent"] ?? "", new RegExp(`^00-${call.traceId}-${attempt?.spanId}-0[01]$`))
  })

  it.effect.each([[150, 1, 0], [150, 10, 0], [300, 300, 0], [300, 300, 3]] as const)(
    "gets no ban for %s calls, %s at once, %s with a lost response, on a key of 60 requests a minute",
    ([calls, concurrency, lost]) =>
      Effect.gen(function*() {
        const [client, service] = [yield* PetstoreClient, yield* TestService]
        if (lost > 0) yield* Effect.all([client.list(), service.becomeSlow("1 second"), service.loseResponses(lost)])
        const call = Effect.match(client.list(), { onSuccess: () => "ok", onFailure: ({ _tag }) => _tag })
        const { result, seconds } = yield* runWithTestClock(Effect.replicateEffect(call, calls, { concurrency }))
        assert.isAtLeast(result.filter((one) => one === "ok").length, concurrency === 1 ? calls : 120 - 2 * lost)
        if (concurrency === 1) assert.isAtMost(seconds, 180)
        // A call that would wait more than two minutes fails with RateLimitExceeded; a ban would give ApiKeyBanned.
        assert.isEmpty(result.filter((one) => one !== "ok" && one !== "RateLimitExceeded"))
        assert.isAtMost((yield* service.sentRequests).filter(({ status }) => status === 429).length, 1 + lost)
      }).pipe(Effect.provide(layerTest()))
  )

  it.effect("returns every field of the schema as it was sent: from create, get and list", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const newPets = yield* Arbitrary.sampleEffect(Arbitrary.schema(NewPet), { count: 60, seed: "fields" })
      const created = yield* Effect.forEach(newPets, (newPet) =>
        Effect.gen(function*() {
          const created = yield* client.create(newPet)
          assert.deepStrictEqual(created, { id: created.id, ...newPet })
          assert.deepStrictEqual(yield* client.get(created.id), created)
          return created
        }))
      assert.deepStrictEqual((yield* client.list({ limit: 100 })).pets, created)
    }).pipe(Effect.provide(layerTest({ limits: { perMinute: 1_000, perDay: 1_000 } }))))

  testOnService("fails at once, without a request, when a wait would exceed maxWait", function*(client, service) {
    yield* client.list()
    const errors = yield* Effect.replicateEffect(Effect.flip(client.list()), 100)
    for (const error of errors) assert.deepInclude(error, { _tag: "RateLimitExceeded", status: 429 })
    assert.lengthOf(yield* service.sentRequests, 2)
    // Once a minute, one call sends its request.
    yield* TestClock.adjust("59 seconds")
    yield* Effect.flip(client.list())
    assert.lengthOf(yield* service.sentRequests, 2)
    yield* TestClock.adjust("2 seconds")
    yield* Effect.replicateEffect(Effect.flip(client.list()), 9)
    assert.lengthOf(yield* service.sentRequests, 3)
  }, { limits: { perMinute: 1, perDay: 1 }, retry: { maxWait: "30 seconds" } })
})

type Reply = Response | "nothing" | "never"

/**
 * Uses clients whose requests get `replies` in order, and the last one from then on. "nothing" is a failed connection,
 * "never" a response that does not arrive. Returns the result, the headers of each request, and the seconds.
 */
const withReplies = Effect.fnUntraced(function*<A, E>(
  replies: ReadonlyArray<Reply>,
  use: (client: PetstoreClient["Service"], admin: AdminClient["Service"]) => Effect.Effect<A, E>,
  options: Partial<Options> = {}
) {
  const requests: Array<Headers.Headers> = []
  const http = HttpClient.make((request) =>
    Effect.suspend(() => {
      const reply = replies[Math.min(requests.length, replies.length - 1)]
      requests.push(request.headers)
      if (reply === "never" || reply === undefined) return Effect.never
      if (reply !== "nothing") return Effect.succeed(HttpClientResponse.fromWeb(request, reply.clone()))
      const reason = new HttpClientError.TransportError({ request, cause: new Error("connection refused") })
      return Effect.fail(new HttpClientError.HttpClientError({ reason }))
    })
  )
  const result = Effect.gen(function*() {
    const client = yield* PetstoreClient.make({ baseUrl, apiKey: Redacted.make("psk"), ...options })
    return yield* use(client, yield* AdminClient)
  })
  const admin = AdminClient.layerHttp({ baseUrl, token: Redacted.make("adm") })
  const layer = Layer.provideMerge(admin, Layer.succeed(HttpClient.HttpClient, http))
  return { ...yield* Effect.provide(runWithTestClock(result), layer), requests }
})

const failureOf = (replies: ReadonlyArray<Reply>, options?: Partial<Options>) =>
  withReplies(replies, ({ list }) => Effect.flip(list()), options)

const reply = (type: string) => (status: number, body: string | ReadableStream, headers: object = {}) =>
  new Response(body, { status, headers: { "content-type": type, ...headers } })
const json = reply("application/json")
const html = (status: number, headers?: object) => reply("text/html")(status, "<html>", headers)
const error = (status: number, code: string, headers?: object) =>
  json(status, `{"code":"${code}","message":"Later.","status":${status}}`, headers)
const pets = json(200, "[]")
const busy = error(503, "service_unavailable", { "retry-after": "3" })
const fault = error(500, "internal_error")

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
  // The response of `fetch` in a browser to a redirect that it does not follow has status 0, as this one.
  [Response.error(), "UnexpectedResponse", /returned 0, a redirect to an unknown host/, false],
  [html(200), "UnexpectedResponse", /returned 200 with text\/html/, false],
  [json(200, `{"hello":"world"}`), "UnexpectedResponse", /returned 200 with application\/json/, false],
  [json(404, "{}"), "UnexpectedResponse", /returned 404/, false],
  [json(502, `{"code":"later","message":"Later.","status":400}`), "UnexpectedResponse", /returned 502/, true],
  // An unknown code of a known status.
  [error(400, "later"), "InvalidRequest", /^Later\.$/, false],
  [error(401, "later"), "InvalidApiKey", /^Later\.$/, false],
  [error(599, "later"), "UndeclaredError", /^Later\.$/, true],
  [error(505, "later"), "UndeclaredError", /^Later\.$/, false],
  // A known error that `list` does not declare.
  [error(404, "not_found"), "UndeclaredError", /^Later\.$/, false]
]

describe("PetstoreClient with a failing service", () => {
  it.effect("retries after Retry-After, at most five times and until maxWait, and fails with the last error", () =>
    Effect.gen(function*() {
      const { result, seconds } = yield* withReplies([busy, "nothing", busy, pets], (client) => client.list())
      assert.deepStrictEqual(result, { pets: [] })
      assert.isAtLeast(seconds, 6)
      for (const [delay, wait] of [["1 second", 3], ["9 seconds", 9]] as const) {
        const spaced = { retry: { schedule: Schedule.spaced(delay) } }
        assert.isAtLeast((yield* withReplies([busy, pets], (client) => client.list({}, spaced))).seconds, wait)
      }
      const retry = { maxWait: "10 seconds", schedule: Schedule.spaced("3 seconds") } as const
      const bounded = yield* failureOf(["nothing"], { retry })
      assert.deepStrictEqual([bounded.requests.length, bounded.seconds], [4, 9])
      for (const [date, wait] of [["Thu, 01 Jan 1970 00:01:00 GMT", 40], ["soon", 1]] as const) {
        const dated = [json(503, "{}", { "retry-after": date }), pets]
        assert.approximately((yield* withReplies(dated, (client) => client.list())).seconds, wait, 15)
      }
      const failing = yield* failureOf([busy, busy, busy, busy, busy, fault])
      assert.deepStrictEqual([reasonOf(failing.result), failing.requests.length], ["InternalError", 6])
    }))

  it.effect.each(failures)("fails after %s with %s, and retries if that helps", (row) =>
    Effect.gen(function*() {
      const [reply, reason, message, canSucceed] = row
      const { requests, result } = yield* failureOf([reply], { retry: { attemptTimeout: "5 seconds", times: 2 } })
      assert.strictEqual(reasonOf(result), reason)
      assert.match(result.message, message)
      if (reply === "nothing") assert.containsSubset(result, { reason: { cause: {} } })
      assert.strictEqual(isRetryable(result), canSucceed, result.message)
      assert.lengthOf(requests, canSucceed ? 3 : 1)
    }))

  it.effect("overrides the client's options with those of a call, one by one", () =>
    Effect.gen(function*() {
      const retry = { attemptTimeout: "1 second", schedule: Schedule.spaced("10 seconds"), times: undefined } as const
      const call = ({ list }: PetstoreClient["Service"]) => Effect.flip(list({}, { retry, timeout: "1 minute" }))
      const own = { timeout: "1 second", headers: { "x-a": "1" }, retry: { times: 2 } } as const
      const { requests, seconds } = yield* withReplies(["never"], call, own)
      assert.deepStrictEqual([requests.map((headers) => headers["x-a"]), seconds], [["1", "1", "1"], 23])
    }))

  it.effect("has the default timeouts and backoff that its page names", () =>
    Effect.gen(function*() {
      const waits: Array<number> = []
      const logger = Logger.make(({ message }) => void waits.push(Number(/\d+/.exec(String(message)))))
      const { requests, seconds } = yield* withDebugLog(failureOf(["never"]), logger)
      assert.deepStrictEqual([requests.length, seconds, waits.length], [4, 120, 3])
      assert.strictEqual((yield* failureOf(["never"], { retry: { times: 0 } })).seconds, 30)
      for (const [i, wait] of waits.entries()) assert.approximately(wait, 200 * 2 ** i, 41 * 2 ** i)
      assert.notDeepEqual(waits, [200, 400, 800])
    }))

  const usedUpWindows = [
    ["for the seconds of RateLimit, even if this machine's clock is wrong", `"minute";r=0;t=30, "day";r=9;t=8000`, 31],
    ["until the last of several used up windows ends", `"minute";r=0;t=30, "day";r=0;t=90`, 91]
  ] as const
  it.effect.each(usedUpWindows)("waits %s", ([, ratelimit, expected]) =>
    Effect.gen(function*() {
      const limit = { "x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9000" }
      const usedUp = json(200, "[]", { ...limit, ratelimit })
      const { seconds } = yield* withReplies([usedUp, pets], ({ list }) => Effect.all([list(), list()]))
      assert.approximately(seconds, expected, 1)
    }))

  it.effect("sends calls at once again after one has succeeded during a ban", () =>
    Effect.gen(function*() {
      const banned = error(429, "api_key_banned", { "retry-after": "100" })
      const { seconds } = yield* withReplies([banned, pets], ({ list }) => {
        const probe = list({}, { retry: { maxWait: 0 } })
        return Effect.all([Effect.flip(probe), Effect.sleep("61 seconds"), probe, list()])
      })
      assert.isAtMost(seconds, 63)
    }))

  it.effect("ignores rate limit headers of the address", () =>
    Effect.gen(function*() {
      const ofKey = { "x-ratelimit-limit": "60", "x-ratelimit-remaining": "59", "x-ratelimit-reset": "60" }
      const ofAddress = { ...ofKey, "x-ratelimit-remaining": "0", "x-ratelimit-scope": "address" }
      const replies = [json(200, "[]", ofKey), error(408, "request_timeout", ofAddress), pets]
      const { result, seconds } = yield* withReplies(replies, ({ list, rateLimit }) =>
        Effect.andThen(Effect.all([list(), list()]), rateLimit))
      assert.strictEqual(Option.getOrThrow(result).remaining, 59)
      assert.isBelow(seconds, 60)
    }))

  it.effect("runs the effect of the API key before each attempt", () =>
    Effect.gen(function*() {
      let rotations = 0
      const apiKey = Effect.sync(() => Redacted.make(`psk_${++rotations}`))
      const { requests } = yield* withReplies([fault, pets], ({ list }) => list(), { apiKey })
      assert.deepStrictEqual(requests.map(({ authorization }) => authorization), ["Bearer psk_1", "Bearer psk_2"])
    }))

  it.effect("retries without a request while the effect of a secret fails, and then fails with its cause", () =>
    Effect.gen(function*() {
      const down = new Error("vault.internal is down")
      let attempts = 0
      const apiKey = Effect.suspend(() =>
        ++attempts % 3 === 0 ? Effect.succeed(Redacted.make("psk")) : Effect.fail(down)
      )
      const { requests } = yield* withReplies([pets], ({ list }) => list(), { apiKey })
      assert.deepStrictEqual([attempts, requests.length], [3, 1])
      const failing = yield* failureOf([pets], { apiKey: Effect.fail(down), retry: { times: 1 } })
      assert.strictEqual(failing.result.message, "The secret of the client is unavailable: vault.internal is down")
      assert.containsSubset(failing.result, { reason: { _tag: "SecretUnavailable", cause: down } })
      assert.isTrue(isRetryable(failing.result))
      if (failing.result._tag === "PetstoreClientError") assert.notInclude(failing.result.reason.message, "vault")
      assert.isEmpty(failing.requests)
    }))

  it.effect("layerConfig adds options to those of the variables, or replaces one", () =>
    Effect.gen(function*() {
      const urls: Array<string> = []
      const fetch: typeof globalThis.fetch = (input) => {
        urls.push(String(input instanceof Request ? input.url : input))
        return Promise.resolve(new Response("[]", { headers: { "content-type": "application/json" } }))
      }
      const variables = { PETSTORE_URL: "http://a.test", PETSTORE_API_KEY: "psk", OTHER_URL: "http://b.test" }
      const list = Effect.flatMap(PetstoreClient, (client) => client.list())
      yield* Effect.all([
        Effect.provide(list, PetstoreClient.layerConfig()),
        Effect.provide(list, PetstoreClient.layerConfig({ timeout: Config.succeed("1 second") })),
        Effect.provide(list, PetstoreClient.layerConfig({ baseUrl: Config.String("OTHER_URL") }))
      ]).pipe(
        Effect.provideService(FetchHttpClient.Fetch, fetch),
        Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(variables)))
      )
      assert.deepStrictEqual(urls.map((url) => new URL(url).host), ["a.test", "a.test", "b.test"])
    }))

  it.effect("AdminClient.layerConfig reads PETSTORE_ADMIN_URL and ADMIN_TOKEN", () =>
    Effect.gen(function*() {
      const sent: Array<unknown> = []
      const fetch: typeof globalThis.fetch = (input, init) => {
        sent.push(
          String(input instanceof Request ? input.url : input),
          new globalThis.Headers(init?.headers).get("authorization")
        )
        return Promise.resolve(new Response("[]", { headers: { "content-type": "application/json" } }))
      }
      const variables = { PETSTORE_ADMIN_URL: "http://a.test", ADMIN_TOKEN: "adm_1" }
      yield* Effect.flatMap(AdminClient, ({ list }) => list()).pipe(
        Effect.provide(AdminClient.layerConfig()),
        Effect.provideService(FetchHttpClient.Fetch, fetch),
        Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(variables)))
      )
      assert.deepStrictEqual(sent, ["http://a.test/admin/keys", "Bearer adm_1"])
    }))

  it.effect("AdminClient retries a call that writes while its token is unavailable, because it has sent nothing", () =>
    Effect.gen(function*() {
      let attempts = 0
      const token = Effect.suspend(() => ++attempts < 3 ? Effect.fail("down") : Effect.succeed(Redacted.make("adm")))
      const http = HttpClient.make((request) =>
        Effect.succeed(HttpClientResponse.fromWeb(request, new Response(null, { status: 204 })))
      )
      const revoke = Effect.flatMap(AdminClient.make({ baseUrl, token }), (admin) => admin.revoke("key_a"))
      yield* runWithTestClock(Effect.provideService(revoke, HttpClient.HttpClient, http))
      assert.strictEqual(attempts, 3)
    }))

  it.effect("accepts a base URL with or without /v1, and dies if it is not an http or https URL", () =>
    Effect.gen(function*() {
      for (const path of ["", "/", "/v1", "/v1/"]) {
        const { result } = yield* failureOf([html(200)], { baseUrl: `https://petstore.test${path}` })
        assert.include(result.message, "GET https://petstore.test/v1/pets returned 200 with text/html")
      }
      for (const baseUrl of ["no address", "ftp://petstore.test", ""]) {
        const exit = yield* Effect.exit(failureOf([pets], { baseUrl }))
        assert.match(String(exit), /TypeError: baseUrl: expected an http or https URL/)
      }
    }))

  const rows = [
    ["nothing", "Unreachable", 1],
    // The service may have issued the key before this response, but not before the next one.
    [busy, "ServiceUnavailable", 1],
    [error(429, "too_many_attempts", { "retry-after": "1" }), "TooManyAttempts", 6]
  ] as const
  it.effect.each(rows)("retries AdminClient's calls if safe: %s", ([reply, reason, sent]) =>
    Effect.gen(function*() {
      const read = yield* withReplies([reply, pets], (_, { list }) => list())
      assert.deepStrictEqual([read.result, read.requests.length], [{ keys: [] }, 2])
      const write = yield* withReplies([reply], (_, { issue, revoke, update }) => {
        const issued = issue({ name: "a", plan: "free" }, { idempotencyKey: "a" })
        const updated = update("key_a", { name: "a" })
        return Effect.all([Effect.flip(issued), Effect.flip(updated), Effect.flip(revoke("key_a"))])
      })
      assert.strictEqual(write.requests[0]?.["idempotency-key"], "a")
      assert.deepStrictEqual(write.result.map(reasonOf), [reason, reason, reason])
      assert.lengthOf(write.requests, 3 * sent)
    }))

  it.effect("sends the headers of each call of both clients", () =>
    Effect.gen(function*() {
      const own = { headers: { "x-a": "1" } }
      const lists = ["list", "topUsage", "audit"] as const
      const ofKey = ["get", "usage", "rotate", "endFormerSecrets", "revoke", "unban"] as const
      const { requests } = yield* withReplies([html(200)], (client, admin) => {
        const calls: ReadonlyArray<Step> = [
          client.create(rex, own),
          client.get(1n, own),
          admin.issue({ name: "a", plan: "free" }, own),
          admin.update("key_a", { name: "b" }, own),
          admin.session(own),
          Stream.runDrain(admin.all({}, own)),
          Stream.runDrain(admin.auditAll({}, own)),
          ...lists.map((name) => admin[name]({}, own)),
          ...ofKey.map((name) => admin[name]("key_a", own))
        ]
        return Effect.forEach(calls, (call) => Effect.ignore(call))
      })
      assert.deepStrictEqual(requests.map((headers) => headers["x-a"]), Array(16).fill("1"))
    }))

  it.effect("has a span for each call of both clients, with the id of the pet or the key", () =>
    Effect.gen(function*() {
      const spans: Array<Tracer.NativeSpan> = []
      const span: Tracer.Tracer["span"] = (options) =>
        spans[spans.push(new Tracer.NativeSpan(options)) - 1] ?? assert.fail()
      const lists = ["list", "topUsage", "audit"] as const
      const ofKey = ["get", "usage", "rotate", "endFormerSecrets", "revoke", "unban"] as const
      const calls = withReplies([html(200)], (client, admin) => {
        const all: ReadonlyArray<Step> = [
          client.list(),
          client.create(rex),
          client.get(7n),
          Stream.runDrain(client.all()),
          admin.issue({ name: "a", plan: "free" }),
          admin.update("key_a", { name: "b" }),
          admin.session(),
          Stream.runDrain(admin.all()),
          Stream.runDrain(admin.auditAll()),
          ...lists.map((name) => admin[name]()),
          ...ofKey.map((name) => admin[name]("key_a"))
        ]
        return Effect.forEach(all, (call) => Effect.ignore(call))
      })
      yield* Effect.withTracer(calls, Tracer.make({ span }))
      const named = spans.filter(({ name }) => /^\w+Client\./.test(name))
      const shown = named.map(({ attributes, name }) => [
        name,
        attributes.get("petstore.pet.id") ?? attributes.get("petstore.key.id")
      ])
      const expected = (client: string, id: unknown, ...names: ReadonlyArray<string>) =>
        names.map((name) => [`${client}.${name}`, id])
      assert.deepStrictEqual(shown, [
        ...expected("PetstoreClient", undefined, "list", "create"),
        ...expected("PetstoreClient", 7n, "get"),
        // A stream has a span of its own, and one for each page.
        ...expected("PetstoreClient", undefined, "pages", "list"),
        ...expected("AdminClient", undefined, "issue"),
        ...expected("AdminClient", "key_a", "update"),
        ...expected("AdminClient", undefined, "session", "all", "list", "auditAll", "audit", ...lists),
        ...expected("AdminClient", "key_a", ...ofKey)
      ])
    }))

  it.effect("sends calls at once after a response without rate limits", () =>
    Effect.gen(function*() {
      const { requests } = yield* withReplies([pets, "never"], ({ list }) =>
        Effect.andThen(
          list(),
          Effect.timeoutOption(Effect.replicateEffect(list(), 100, { concurrency: "unbounded" }), "500 millis")
        ))
      assert.lengthOf(requests, 101)
    }))

  it.effect("sends one request, and one more for each second without a response", () =>
    Effect.gen(function*() {
      const { requests } = yield* withReplies(["never"], ({ list }) =>
        Effect.timeoutOption(Effect.replicateEffect(list(), 100, { concurrency: "unbounded" }), "9500 millis"))
      assert.lengthOf(requests, 10)
    }))

  it.effect.each([401, 404])(
    "keeps one request in flight after a first response with %d and without limits",
    (status) =>
      Effect.gen(function*() {
        const replies: ReadonlyArray<Reply> = [error(status, "later"), "never"]
        const { requests } = yield* withReplies(replies, ({ list }) =>
          Effect.andThen(
            Effect.flip(list()),
            Effect.timeoutOption(Effect.replicateEffect(list(), 100, { concurrency: "unbounded" }), "500 millis")
          ))
        assert.lengthOf(requests, 2)
      })
  )

  it.effect("fails at once if Retry-After ends after its timeout, also with a longer maxWait", () =>
    Effect.gen(function*() {
      const options = { timeout: "2 seconds", retry: { maxWait: "10 seconds" } } as const
      const { requests, result, seconds } = yield* failureOf([busy, pets], options)
      assert.deepStrictEqual([reasonOf(result), requests.length], ["ServiceUnavailable", 1])
      assert.isAtMost(seconds, 1)
    }))

  it.effect.each<Reply>(["never", busy])(
    "fails at its timeout, and sends nothing more: %s",
    (reply) =>
      Effect.gen(function*() {
        const calls = ({ list }: PetstoreClient["Service"]) =>
          Effect.replicateEffect(Effect.flip(list()), 100, { concurrency: "unbounded" })
        const { requests, result, seconds } = yield* withReplies([reply], calls, { timeout: "2500 millis" })
        assert.isAtMost(seconds, 3)
        if (reply === "never") assert.deepStrictEqual(new Set(result.map(reasonOf)), new Set(["Unreachable"]))
        const sent = requests.length
        yield* TestClock.adjust("10 minutes")
        assert.lengthOf(requests, sent)
      })
  )
})
