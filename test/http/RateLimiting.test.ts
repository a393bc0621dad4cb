/** Tests the rate limits of SPEC §8 over a socket: statuses, bodies and headers. */
import { assert, describe, layer } from "@effect/vitest"
import { Cause, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { memory, type ReceivedResponse, Service, service } from "../support/Harness.ts"

/** The status and the headers of SPEC §8. */
const limitsOf = ({ headers, status }: ReceivedResponse) => ({
  status,
  limit: headers.get("x-ratelimit-limit"),
  remaining: headers.get("x-ratelimit-remaining"),
  reset: headers.get("x-ratelimit-reset"),
  retryAfter: headers.get("retry-after")
})

const policy = `"minute";q=60;w=60, "day";q=1000;w=86400`

/** A new service for each suite, so that no address has used any of its limit. */
const fresh = Layer.fresh(service(memory))

describe("Rate limits", () => {
  layer(fresh)((it) => {
    it.effect("name in X-RateLimit-Scope whose they are: the key's, or the address's without a valid key", () =>
      Effect.gen(function*() {
        const { call, newKey, send } = yield* Service
        const key = yield* newKey
        const scope = ({ headers }: ReceivedResponse) => headers.get("x-ratelimit-scope")
        for (const path of ["/v1/pets", "/v1/pets/1", "/v1/pets?limit=0"]) {
          assert.strictEqual(scope(yield* call(path, { key })), "key", path)
          assert.strictEqual(scope(yield* call(path)), "address", path)
          assert.strictEqual(scope(yield* call(path, { key: "psk_unknown" })), "address", path)
        }
        assert.strictEqual(scope(yield* call("/nowhere", { key })), "address")
        assert.strictEqual(scope(yield* call("/openapi.json")), "address")
        assert.strictEqual(scope(yield* send("garbage\r\n\r\n")), "address")
      }))

    it.effect("allow 60 requests a minute on Free, whatever their status, and return 429 until the reset", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        yield* TestClock.setTime(1_000_500)
        const paths = ["/v1/pets", "/v1/pets?limit=0", "/v1/pets/1", "/v1/pets/x"]
        for (let used = 1; used <= 60; used++) {
          const response = yield* call(paths[used % paths.length] ?? "", { key })
          assert.notStrictEqual(response.status, 429)
          assert.include(limitsOf(response), {
            limit: "60",
            remaining: `${60 - used}`,
            reset: "1061",
            retryAfter: null
          })
          assert.strictEqual(response.headers.get("ratelimit-policy"), policy)
          assert.strictEqual(
            response.headers.get("ratelimit"),
            `"minute";r=${60 - used};t=60, "day";r=${1000 - used};t=86400`
          )
        }
        yield* TestClock.adjust("12300 millis")
        for (let i = 0; i < 3; i++) {
          const rejected = yield* call("/v1/pets", { key })
          assert.deepStrictEqual(limitsOf(rejected), {
            status: 429,
            limit: "60",
            remaining: "0",
            reset: "1061",
            retryAfter: "48"
          })
          assert.strictEqual(rejected.headers.get("ratelimit"), `"minute";r=0;t=48, "day";r=940;t=86388`)
          assert.strictEqual(
            rejected.text,
            `{"code":"rate_limit_exceeded","message":"The limit of 60 requests a minute is used up. ` +
              `Retry in 48 seconds.","status":429}`
          )
        }
        yield* TestClock.adjust("47699 millis")
        assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 429, retryAfter: "1" })
        yield* TestClock.adjust("1 millis")
        assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 200, remaining: "59", reset: "1121" })
      }))

    it.effect("allow 1,000 requests a day on Free, and then show the day's window", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        yield* TestClock.setTime(0)
        for (let used = 0; used < 1000; used++) {
          if (used > 0 && used % 60 === 0) yield* TestClock.adjust("1 minute")
          assert.strictEqual((yield* call("/v1/pets?limit=1", { key })).status, 200)
        }
        assert.deepStrictEqual(limitsOf(yield* call("/v1/pets", { key })), {
          status: 429,
          limit: "1000",
          remaining: "0",
          reset: "86400",
          retryAfter: `${86_400 - 16 * 60}`
        })
      }))

    it.effect("allow no more concurrent requests than sequential ones", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        const responses = yield* Effect.all(Array.from({ length: 100 }, () => call("/v1/pets", { key })), {
          concurrency: "unbounded"
        })
        assert.lengthOf(responses.filter(({ status }) => status === 200), 60)
        assert.lengthOf(responses.filter(({ status }) => status === 429), 40)
        const remaining = responses.filter(({ status }) => status === 200).map((response) =>
          Number(limitsOf(response).remaining)
        )
        assert.deepStrictEqual(remaining.toSorted((a, b) => a - b), Array.from({ length: 60 }, (_, i) => i))
      }))
  })

  layer(fresh)((it) => {
    it.effect("charge a request without a valid key to its address, and still allow valid keys from there", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        const requests = [
          ["/v1/pets", {}, 401],
          ["/v1/pets/1", { key: "unknown" }, 401],
          ["/nowhere", { key }, 404],
          ["/v1/pets", { key, method: "DELETE" }, 405],
          ["/nowhere", {}, 404]
        ] as const
        for (let used = 1; used <= 60; used++) {
          const [path, options, status] = requests[used % requests.length] ?? requests[0]
          const response = yield* call(path, options)
          assert.include(limitsOf(response), { status, limit: "60", remaining: `${60 - used}`, reset: "60" })
        }
        for (const [path, options] of requests) {
          const response = yield* call(path, options)
          assert.include(limitsOf(response), { status: 429, remaining: "0", retryAfter: "60" })
          assert.strictEqual(JSON.parse(response.text).code, "rate_limit_exceeded")
        }
        assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 200, remaining: "59" })
      }))
  })

  /** The stores during an outage: verifying any key times out. */
  const outage = Layer.effect(
    ApiKeys,
    Effect.map(ApiKeys, (apiKeys) => ({ ...apiKeys, verify: () => Effect.die(new Cause.TimeoutError()) }))
  ).pipe(Layer.provideMerge(memory))

  layer(Layer.fresh(service(outage)))((it) => {
    it.effect("charge no address during an outage of the service, and responses stay 503", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        for (let i = 0; i < 70; i++) {
          assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 503, remaining: "60", retryAfter: "1" })
        }
        for (let i = 0; i < 60; i++) yield* call("/nowhere")
        assert.include(limitsOf(yield* call("/nowhere")), { status: 429 })
        assert.include(limitsOf(yield* call("/v1/pets", { key })), { status: 503, remaining: "0", retryAfter: "1" })
      }))
  })
})
