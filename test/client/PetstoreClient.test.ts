/** The typed client against the service's own handlers, and against whatever else may answer. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Option, Redacted, Stream } from "effect"
import { HttpClient, HttpClientError, HttpClientResponse } from "effect/http"
import { TestClock } from "effect/testing"
import { createServer } from "node:http"
import { AdminClient, type Options, PetstoreClient } from "../../src/client/PetstoreClient.ts"
import { ApiKeys, layerTest, PetRepository, RateLimiter } from "../../src/testing.ts"

/** Lets time go by, a second at a time, until `effect` is done. */
const inTime = Effect.fnUntraced(function*<A, E, R>(effect: Effect.Effect<A, E, R>) {
  const fiber = yield* Effect.forkChild(effect)
  let seconds = 0
  while (fiber.pollUnsafe() === undefined) {
    yield* TestClock.adjust("1 second")
    seconds++
  }
  return { seconds, result: yield* Fiber.join(fiber) }
})

const rex = { name: "Rex", categoryId: 9223372036854775807n, status: "available" } as const

describe("PetstoreClient with the service in memory", () => {
  it.effect("adds, gets and lists animals, with all 64 bits of their integers", () =>
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
      assert.deepStrictEqual(yield* client.rateLimit, Option.some({ limit: 60, remaining: 56, resetAt: 60 }))
    }).pipe(Effect.provide(layerTest())))

  it.effect("walks through all animals, page after page, as far as they are asked for", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const repository = yield* PetRepository
      for (let i = 0; i < 25; i++) {
        yield* repository.create({ name: `${i}`, categoryId: 1n, ...i % 2 === 0 && { status: "sold" } })
      }
      const sold = yield* Stream.runCollect(client.all({ status: "sold", pageSize: 4 }))
      assert.deepStrictEqual([...sold].map(({ name }) => Number(name)), Array.from({ length: 13 }, (_, i) => 2 * i))
      const before = yield* client.rateLimit
      const few = yield* Stream.runCollect(Stream.take(client.all({ pageSize: 5 }), 7))
      assert.lengthOf([...few], 7)
      const used = Option.getOrThrow(before).remaining - Option.getOrThrow(yield* client.rateLimit).remaining
      assert.strictEqual(used, 2)
    }).pipe(Effect.provide(layerTest())))

  it.effect("tells errors apart by their tags", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      // oxlint-disable-next-line typescript/no-deprecated -- it is served until 2030
      const missing = yield* Effect.flip(client.get(7n))
      assert.deepInclude(missing, { _tag: "NotFound", status: 404, code: "not_found" })
      yield* client.create(rex, { idempotencyKey: "a" })
      const reused = yield* Effect.flip(client.create({ ...rex, name: "Tom" }, { idempotencyKey: "a" }))
      assert.strictEqual(reused._tag, "IdempotencyKeyReused")
      const invalid = yield* Effect.flip(client.create({ ...rex, name: "\u0000" }))
      assert.strictEqual(invalid._tag, "PetstoreClientError")
      const large = yield* Effect.flip(client.create({ ...rex, name: "x".repeat(70_000) }))
      assert.strictEqual(large._tag, "PayloadTooLarge")
      const apiKeys = yield* ApiKeys
      const { keys: [key] } = yield* apiKeys.list({ limit: 1 })
      yield* apiKeys.revoke(key?.id ?? "")
      assert.strictEqual((yield* Effect.flip(client.list()))._tag, "InvalidApiKey")
    }).pipe(Effect.provide(layerTest())))

  it.effect("has a service of its own, also inside of another", () =>
    Effect.gen(function*() {
      const outer = yield* PetstoreClient
      yield* outer.create(rex)
      const inner = Effect.flatMap(PetstoreClient, (client) => client.list())
      assert.lengthOf((yield* Effect.provide(inner, layerTest({ plan: "pro" }))).pets, 0)
      assert.lengthOf((yield* outer.list()).pets, 1)
    }).pipe(Effect.provide(layerTest())))

  it.effect("is refused with a wrong key", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      assert.strictEqual((yield* Effect.flip(client.list()))._tag, "InvalidApiKey")
    }).pipe(Effect.provide(layerTest({ apiKey: Redacted.make("psk_wrong") }))))

  it.effect("makes 150 calls in a loop on a key of 60 a minute, without an error and without a ban", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      const { result, seconds } = yield* inTime(Effect.forEach(Array.from({ length: 150 }), () => client.list()))
      assert.lengthOf(result, 150)
      assert.isAtLeast(seconds, 120)
      assert.isAtMost(seconds, 180)
    }).pipe(Effect.provide(layerTest())))

  for (const [calls, concurrency] of [[150, 10], [150, 150], [300, 300]] as const) {
    it.effect(`is not banned for ${calls} calls, ${concurrency} at once, on a key of 60 a minute`, () =>
      Effect.gen(function*() {
        const client = yield* PetstoreClient
        const call = Effect.match(client.list(), { onSuccess: () => "ok", onFailure: ({ _tag }) => _tag })
        const { result } = yield* inTime(Effect.all(Array.from({ length: calls }, () => call), { concurrency }))
        assert.isAtLeast(result.filter((one) => one === "ok").length, 120)
        const apiKeys = yield* ApiKeys
        const { keys: [key] } = yield* apiKeys.list({ limit: 1 })
        const limiter = yield* RateLimiter
        assert.isUndefined((yield* limiter.peek(`key:${key?.id}`, { perMinute: 60, perDay: 1000 })).bannedUntil)
        // A ban would have been an ApiKeyBanned. Who would have to wait for more than two minutes is told so.
        assert.isEmpty(result.filter((one) => one !== "ok" && one !== "RateLimitExceeded"))
      }).pipe(Effect.provide(layerTest())))
  }

  it.effect("tells the service of the trace that a call is part of", () =>
    Effect.gen(function*() {
      const traced = answeredBy([pets])
      yield* Effect.flatMap(PetstoreClient, (client) => client.list()).pipe(
        Effect.withSpan("outer"),
        Effect.provide(traced.layer)
      )
      assert.match(traced.requests[0]?.traceparent ?? "", /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/)
    }))

  it.effect("gives up with the 429 where it would have to wait for longer than it may", () =>
    Effect.gen(function*() {
      const client = yield* PetstoreClient
      yield* client.list()
      const { result, seconds } = yield* inTime(Effect.flip(client.list()))
      assert.deepInclude(result, { _tag: "RateLimitExceeded", status: 429 })
      assert.isAtMost(seconds, 2)
      // Who does not wait is told the same, and not banned for it.
      for (let i = 0; i < 100; i++) assert.strictEqual((yield* Effect.flip(client.list()))._tag, "RateLimitExceeded")
      const { keys: [key] } = yield* Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.list({ limit: 1 }))
      const limiter = yield* RateLimiter
      assert.isUndefined((yield* limiter.peek(`key:${key?.id}`, { perMinute: 10, perDay: 1 })).bannedUntil)
      yield* TestClock.adjust("1 day")
      yield* client.list()
    }).pipe(Effect.provide(layerTest({ limits: { perMinute: 10, perDay: 1 } }))))
})

/** A client that is answered by `answers`, one after another, and the last one from then on. */
const answeredBy = (answers: ReadonlyArray<Response | "nothing" | "never">, options: Partial<Options> = {}) => {
  const requests: Array<
    { readonly method: string; readonly key: string | undefined; readonly traceparent: string | undefined }
  > = []
  const client = HttpClient.make((request) =>
    Effect.suspend(() => {
      const answer = answers[Math.min(requests.length, answers.length - 1)]
      requests.push({
        method: request.method,
        key: request.headers["idempotency-key"],
        traceparent: request.headers["traceparent"]
      })
      if (answer === "never" || answer === undefined) return Effect.never
      return answer === "nothing"
        ? Effect.fail(
          new HttpClientError.HttpClientError({
            reason: new HttpClientError.TransportError({ request, cause: new Error("connection refused") })
          })
        )
        : Effect.succeed(HttpClientResponse.fromWeb(request, answer.clone()))
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
  { layer }: ReturnType<typeof answeredBy>,
  use: (client: PetstoreClient["Service"]) => Effect.Effect<A, E>
) => inTime(Effect.flatMap(PetstoreClient, use)).pipe(Effect.provide(layer))

describe("PetstoreClient, where the service does not answer as it should,", () => {
  it.effect("sends again what was refused or lost, and an addition under the same key each time", () =>
    Effect.gen(function*() {
      const list = answeredBy([busy, "nothing", busy, pets])
      const { result, seconds } = yield* withClient(list, (client) => client.list())
      assert.deepStrictEqual(result, { pets: [] })
      assert.isAtLeast(seconds, 6)
      const create = answeredBy(["nothing", busy, created])
      yield* withClient(create, (client) => client.create({ name: "Rex", categoryId: 1n }))
      assert.lengthOf(create.requests, 3)
      assert.strictEqual(new Set(create.requests.map(({ key }) => key)).size, 1)
      assert.match(create.requests[0]?.key ?? "", /^[0-9a-f-]{36}$/)
    }))

  it.effect("sends nothing again that is refused for good, and gives up after as many times as it may", () =>
    Effect.gen(function*() {
      const invalid = answeredBy([json(400, `{"code":"invalid_request","message":"-","status":400}`)])
      assert.strictEqual(
        (yield* withClient(invalid, (client) => Effect.flip(client.list()))).result._tag,
        "InvalidRequest"
      )
      assert.lengthOf(invalid.requests, 1)
      const failing = answeredBy([fault])
      assert.strictEqual(
        (yield* withClient(failing, (client) => Effect.flip(client.list()))).result._tag,
        "InternalError"
      )
      assert.lengthOf(failing.requests, 6)
      const down = answeredBy([busy], { retry: { times: 2 } })
      assert.strictEqual(
        (yield* withClient(down, (client) => Effect.flip(client.list()))).result._tag,
        "ServiceUnavailable"
      )
      assert.lengthOf(down.requests, 3)
    }))

  it.effect("says what happened", () =>
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
      const wrong: ReadonlyArray<readonly [Response | "nothing" | "never", string, RegExp]> = [
        ["nothing", "unreachable", /^GET http:\/\/petstore\.test\/v1\/pets: .*connection refused/],
        ["never", "unreachable", /No answer within 5s/],
        [html, "unexpected_answer", /answered 502 with text\/html/],
        [page, "unexpected_answer", /answered 200 with text\/html/],
        [other, "unexpected_answer", /answered 200 with application\/json/],
        [json(404, "{}"), "unexpected_answer", /answered 404/],
        [brokenOff, "unreachable", /broke off|terminated|cut/]
      ]
      for (const [answer, reason, message] of wrong) {
        const client = answeredBy([answer], { timeout: "5 seconds", retry: { times: 1 } })
        const { result } = yield* withClient(client, ({ list }) => Effect.flip(list()))
        assert.strictEqual(result._tag === "PetstoreClientError" ? result.reason : result._tag, reason)
        assert.match(result.message, message)
      }
    }))

  it.effect("is told so by AdminClient too, which asks again for what does no harm alone", () =>
    Effect.gen(function*() {
      const admin = (answers: ReadonlyArray<Response | "nothing" | "never">) => {
        const { http, requests } = answeredBy(answers)
        const layer = AdminClient.layerHttp({ baseUrl: "http://petstore.test", token: Redacted.make("adm") })
        return { requests, layer: Layer.provide(layer, http) }
      }
      const lost = admin(["nothing", json(200, "[]")])
      assert.deepStrictEqual(
        (yield* inTime(Effect.flatMap(AdminClient, ({ list }) => list())).pipe(Effect.provide(lost.layer))).result,
        { keys: [] }
      )
      const issue = Effect.flatMap(AdminClient, (client) => Effect.flip(client.issue({ name: "a", plan: "free" })))
      const unissued = admin(["nothing"])
      const { result } = yield* inTime(issue).pipe(Effect.provide(unissued.layer))
      assert.include(result, { _tag: "PetstoreClientError", reason: "unreachable" })
      assert.lengthOf(unissued.requests, 1)
      const outage = admin([busy, json(200, "[]")])
      assert.deepStrictEqual(
        (yield* inTime(Effect.flatMap(AdminClient, ({ list }) => list())).pipe(Effect.provide(outage.layer))).result,
        { keys: [] }
      )
      // It may have been done.
      const gone = admin([busy])
      assert.strictEqual((yield* inTime(issue).pipe(Effect.provide(gone.layer))).result._tag, "ServiceUnavailable")
      assert.lengthOf(gone.requests, 1)
      const page = admin([new Response("<html>", { status: 200, headers: { "content-type": "text/html" } })])
      assert.match(
        (yield* inTime(issue).pipe(Effect.provide(page.layer))).result.message,
        /answered 200 with text\/html/
      )
    }))

  it.effect("can be given up while it waits for its turn", () =>
    Effect.gen(function*() {
      const silent = answeredBy(["never"])
      yield* Effect.gen(function*() {
        const client = yield* PetstoreClient
        yield* Effect.forkChild(client.list())
        yield* TestClock.adjust("1 second")
        const { seconds } = yield* inTime(Effect.timeoutOption(client.list(), "2 seconds"))
        assert.isAtMost(seconds, 3)
      }).pipe(Effect.provide(silent.layer))
      assert.lengthOf(silent.requests, 1)
    }))

  it.effect("is not waited for one call after the other", () =>
    Effect.gen(function*() {
      const silent = answeredBy(["never"], { timeout: "1 second", retry: { times: 0 } })
      const calls = (client: PetstoreClient["Service"]) =>
        Effect.replicateEffect(Effect.flip(client.list()), 100, { concurrency: "unbounded" })
      assert.isAtMost((yield* withClient(silent, calls)).seconds, 9)
    }))

  it.effect("is told from one that refuses, however often it answers", () =>
    Effect.gen(function*() {
      const page = new Response("<html>", {
        status: 429,
        headers: { "content-type": "text/html", "retry-after": "300" }
      })
      const proxy = answeredBy([page])
      const { result } = yield* withClient(
        proxy,
        (client) => Effect.replicateEffect(Effect.flip(client.list()), 2)
      )
      assert.deepStrictEqual(
        result.map((error) => error._tag === "PetstoreClientError" ? error.reason : error._tag),
        ["unexpected_answer", "unexpected_answer"]
      )
      assert.lengthOf(proxy.requests, 1)
    }))

  it.effect("says what happened last, and waits for a date in Retry-After", () =>
    Effect.gen(function*() {
      const restarted = answeredBy([busy, "nothing"], { retry: { times: 2 } })
      const { result } = yield* withClient(restarted, (client) => Effect.flip(client.list()))
      assert.strictEqual(result._tag === "PetstoreClientError" ? result.reason : result._tag, "unreachable")
      const dated = answeredBy([json(503, "{}", { "retry-after": "Thu, 01 Jan 1970 00:00:40 GMT" }), pets])
      assert.isAtLeast((yield* withClient(dated, (client) => client.list())).seconds, 30)
    }))

  it.live("says so of an address where nobody listens, and of TLS where there is none", () =>
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
        assert.include(message, `GET http://127.0.0.1:${port}/v1/pets answered 200 with no type`)
      }
      assert.deepInclude(yield* at("no address"), { _tag: "PetstoreClientError", reason: "unreachable" })
    }))
})
