import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Metric } from "effect"
import { TestClock } from "effect/testing"
import { AuditLog } from "../../src/api-keys/AuditLog.ts"
import { KeyUsage } from "../../src/api-keys/KeyUsage.ts"
import { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertError } from "../support/Assertions.ts"
import { memory } from "../support/Databases.ts"
import { until } from "../support/Process.ts"
import { Service, service } from "../support/Service.ts"
import { message, openConnections, type ReceivedResponse } from "../support/Sockets.ts"

const limitsOf = ({ headers, status }: ReceivedResponse) => {
  const of = (name: string) => headers.get(`x-ratelimit-${name}`)
  const limits = { limit: of("limit"), remaining: of("remaining"), reset: of("reset"), scope: of("scope") }
  return { status, ...limits, retryAfter: headers.get("retry-after") }
}

describe("Rate limits", () => {
  it.effect("allow 60 requests a minute on Free, whatever their status, then return 429 until the minute ends", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      yield* TestClock.setTime(1_000_500)
      const paths = ["/v1/pets", "/v1/pets?limit=0", "/v1/pets/1", "/v1/pets/x"]
      for (let used = 1; used <= 60; used++) {
        // Each fourth request is a create.
        const index = used % paths.length
        const response = yield* call(paths[index] ?? "", { key, method: index === 0 ? "POST" : "GET" })
        const expected = { limit: "60", remaining: `${60 - used}`, reset: "1061", scope: "key", retryAfter: null }
        assert.include(limitsOf(response), expected)
        const windows = `"minute";r=${60 - used};t=60, "day";r=${1000 - used};t=86400`
        assert.strictEqual(response.headers.get("ratelimit"), windows)
      }
      yield* TestClock.adjust("12300 millis")
      const rejected = yield* call("/v1/pets", { key })
      const used = "The API key has used its limit of 60 requests per minute. Retry in 48 seconds."
      assertError(rejected, 429, "rate_limit_exceeded", used)
      assert.include(limitsOf(rejected), { limit: "60", remaining: "0", reset: "1061", scope: "key", retryAfter: "48" })
      assert.strictEqual(rejected.headers.get("ratelimit"), `"minute";r=0;t=48, "day";r=940;t=86388`)
      yield* TestClock.adjust("47699 millis")
      assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 429, retryAfter: "1" })
      yield* TestClock.adjust("1 millis")
      assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 200, remaining: "59", reset: "1121" })
    }).pipe(Effect.provide(service(memory))))

  it.effect("ban a Free key for 60 seconds at its 60th response with 429 in a minute", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      yield* TestClock.setTime(1_000_500)
      yield* call("/v1/pets", { key })
      yield* TestClock.adjust("30 seconds")
      yield* Effect.replicateEffect(call("/v1/pets", { key }), 59 + 59)
      const rejected = yield* call("/v1/pets", { key })
      assertError(rejected, 429, "api_key_banned")
      // The minute's window ends before the ban, and the day's window after it.
      yield* TestClock.adjust("40 seconds")
      const banned = yield* call("/v1/pets", { key })
      const kept = "The API key is temporarily banned for continued requests after 429 responses. Retry in 20 seconds."
      assertError(banned, 429, "api_key_banned", kept)
      assert.include(limitsOf(banned), { remaining: "0", reset: "1091", retryAfter: "20" })
      assert.strictEqual(banned.headers.get("ratelimit"), `"minute";r=0;t=20, "day";r=940;t=86330`)
      // Requests during the ban do not count as further bans.
      const series = (yield* Metric.snapshot).filter(({ id }) => id === "petstore_rate_limit_bans_total")
      const counts = series.map(({ attributes, state }) => [attributes?.["plan"], state])
      assert.deepInclude(counts, ["free", { count: 1, incremental: true }])
    }).pipe(Effect.provide(service(memory)), Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("charge a request without a valid key to its address, and still allow valid keys from there", () =>
    Effect.gen(function*() {
      const { call, newKey, send } = yield* Service
      const key = yield* newKey
      const requests = [
        [call("/v1/pets"), 401],
        [call("/v1/pets/1", { key: "unknown" }), 401],
        [call("/nowhere", { key }), 404],
        [call("/v1/pets", { key, method: "DELETE" }), 405],
        [call("/openapi.json"), 200],
        [send("garbage\r\n\r\n"), 400],
        [send("GET / HTTP/3.0\r\n\r\n"), 505],
        [send(message("GET / HTTP/1.1", [`X: ${"x".repeat(17_000)}`])), 431],
        [call("/v1/pets", { method: "OPTIONS" }), 204]
      ] as const
      for (let used = 1; used <= 60; used++) {
        const [request, status] = requests[used % requests.length] ?? assert.fail()
        const expected = { limit: "60", remaining: `${60 - used}`, reset: "60", scope: "address", retryAfter: null }
        assert.deepStrictEqual(limitsOf(yield* request), { status, ...expected })
      }
      for (const [request] of requests) {
        const rejected = yield* request
        const message = "Your address has used its limit of 60 requests per minute. Retry in 60 seconds."
        assertError(rejected, 429, "rate_limit_exceeded", message)
        assert.include(limitsOf(rejected), { remaining: "0", scope: "address", retryAfter: "60" })
      }
      assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 200, remaining: "59", scope: "key" })
      const series = (yield* Metric.snapshot).filter(({ id }) => id === "petstore_rate_limit_decisions_total")
      const counts = series.map(({ attributes, state }) => [attributes, Reflect.get(state, "count")])
      const ofAddress = { plan: "none", window: "none" }
      assert.sameDeepMembers(counts, [
        [{ ...ofAddress, outcome: "allowed" }, 60],
        [{ ...ofAddress, outcome: "rejected", window: "minute" }, requests.length],
        [{ outcome: "allowed", plan: "free", window: "none" }, 1]
      ])
    }).pipe(Effect.provide(service(memory)), Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("count each IPv4 address and each /64 of IPv6 behind a trusted proxy on its own", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const leftOf = (client: string) =>
        Effect.map(call("/v1/pets", { headers: { "x-forwarded-for": client } }), (each) => limitsOf(each).remaining)
      const left = yield* Effect.forEach(["2001:db8::1", "2001:db8::f", "2001:db8:0:1::1", "192.0.2.1"], leftOf)
      assert.deepStrictEqual(left, ["59", "58", "59", "59"])
    }).pipe(Effect.provide(service(memory, { TRUSTED_PROXIES: "127.0.0.1" }))))

  /** The stores with a verifier that fails for any key. */
  const failing = (verify: () => Effect.Effect<never, ServiceUnavailable>) =>
    Layer.provideMerge(Layer.succeed(KeyVerifier, { verify, evict: () => Effect.void }), memory)
  const outage = failing(() => Effect.fail(new ServiceUnavailable()))

  it.effect("charge no address for a 500 before the key is charged", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      for (let i = 0; i < 3; i++) {
        const expected = { status: 500, remaining: "60", scope: "address" }
        assert.include(limitsOf(yield* call("/v1/pets", { key })), expected)
      }
    }).pipe(Effect.provide(service(failing(() => Effect.die("defect"))))))

  it.effect("charge no address during an outage of the service, and keep getting 503", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      for (let i = 0; i < 70; i++) {
        const expected = { status: 503, remaining: "60", retryAfter: "1", scope: "address" }
        assert.include(limitsOf(yield* call("/v1/pets", { key })), expected)
      }
      for (let i = 0; i < 60; i++) yield* call("/nowhere")
      assert.include(limitsOf(yield* call("/nowhere")), { status: 429 })
      assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 503, remaining: "0", retryAfter: "1" })
    }).pipe(Effect.provide(service(outage))))

  it.effect("record the usage and the ban of a request whose client disconnects before the decision", () => {
    const events: Array<string> = []
    const decided = Deferred.makeUnsafe<void>()
    const ban = { allowed: false, banBegan: true, bannedUntil: 60_000 }
    const stores = Layer.merge(memory, RateLimiter.layerMemory)
    const chargeLate = (own: RateLimiter["Service"]): RateLimiter["Service"]["charge"] => (caller, limits) => {
      if (caller.startsWith("address:")) return own.charge(caller, limits)
      events.push("charge")
      const decision = Effect.map(own.peek(caller, limits), (free) => ({ ...free, ...ban }))
      return Effect.andThen(Deferred.await(decided), decision)
    }
    const limiter = Layer.effect(RateLimiter, Effect.map(RateLimiter, (own) => ({ ...own, charge: chargeLate(own) })))
    const add = (event: string) => void events.push(event)
    const usage = Layer.effect(KeyUsage, Effect.map(KeyUsage, (own) => ({ ...own, count: (_, kind) => add(kind) })))
    const recordBan: AuditLog["Service"]["recordBan"] = ({ address, until }) =>
      Effect.sync(() => add(`ban until ${until}, caused by ${address}`))
    const audit = Layer.effect(AuditLog, Effect.map(AuditLog, (own) => ({ ...own, recordBan })))
    return Effect.gen(function*() {
      const { call, newKey, port } = yield* Service
      const fields = ["Host: x", "X-Forwarded-For: 2001:db8::1", `Authorization: Bearer ${yield* newKey}`]
      const bytes = message("GET /v1/pets HTTP/1.1", fields)
      const [socket] = yield* openConnections(port, 1, { bytes })
      yield* until(() => events.length === 1)
      socket?.resetAndDestroy()
      // The service reads the reset before this request.
      yield* call("/openapi.json", { method: "OPTIONS" })
      yield* Deferred.succeed(decided, undefined)
      yield* until(() => events.length === 3)
      assert.deepStrictEqual(events, ["charge", "banned", "ban until 60000, caused by 2001:db8::1"])
    }).pipe(
      Effect.provide(
        service(Layer.provideMerge(Layer.mergeAll(limiter, usage, audit), stores), { TRUSTED_PROXIES: "127.0.0.1" })
      )
    )
  })

  it.effect("charge a request to its address if the client resets the connection, and count it as 499", () => {
    const counts = { lookups: 0, interrupted: 0 }
    const verify = () => {
      counts.lookups++
      return Effect.onInterrupt(Effect.never, () => Effect.sync(() => counts.interrupted++))
    }
    const store = Layer.provideMerge(Layer.succeed(KeyVerifier, { verify, evict: () => Effect.void }), memory)
    return Effect.gen(function*() {
      const { call, port } = yield* Service
      const remaining = Effect.map(call("/nowhere"), ({ headers }) => Number(headers.get("x-ratelimit-remaining")))
      const before = yield* remaining
      const [socket] = yield* openConnections(port, 1, {
        bytes: message("GET /v1/pets HTTP/1.1", ["Host: x", "Authorization: Bearer a"])
      })
      yield* until(() => counts.lookups === 1)
      socket?.resetAndDestroy()
      yield* until(() => counts.interrupted === 1)
      assert.strictEqual(yield* remaining, before - 2)
      assert.include((yield* Metric.snapshot).map(({ attributes }) => attributes?.["http.response.status_code"]), "499")
    }).pipe(Effect.provide(service(store)), Effect.provideService(Metric.MetricRegistry, new Map()))
  })
})
