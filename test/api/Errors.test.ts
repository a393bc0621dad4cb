/** Tests that errors are values with a tag, and that their body and their headers are those of the contract. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer, Schema } from "effect"
import { HttpServer } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup, HttpApiTest } from "effect/http-api"
import { TestClock } from "effect/testing"
import { inspect } from "node:util"
import * as Errors from "../../src/api/Errors.ts"

/** An API that passes on errors of the contract. */
class OnwardApi extends HttpApi.make("onward").add(
  HttpApiGroup.make("onward", { topLevel: true }).add(
    HttpApiEndpoint.get("call", "/", {
      error: [
        Errors.errorResponse(Errors.NotFound),
        Errors.errorResponse(Errors.RateLimitExceeded, Errors.ApiKeyBanned),
        Errors.errorResponse(Errors.ServiceUnavailable)
      ]
    })
  )
) {}

type OnwardError = Errors.NotFound | Errors.RateLimitExceeded | Errors.ApiKeyBanned | Errors.ServiceUnavailable

/** Returns the response to an error, and the error that a derived client reads from it. */
const passOn = Effect.fnUntraced(function*(error: OnwardError) {
  const handlers = HttpApiBuilder.group(OnwardApi, "onward", (group) => group.handle("call", () => Effect.fail(error)))
  const client = yield* Effect.provide(
    HttpApiTest.groups(OnwardApi, ["onward"]),
    Layer.provideMerge(handlers, HttpServer.layerServices)
  )
  const response = yield* client.call({ responseMode: "response-only" })
  return { response, json: yield* response.json, error: yield* Effect.flip(client.call({})) }
}, Effect.scoped)

const twelve = Duration.seconds(12)

describe("An error of the contract", () => {
  it("shows its tag when it is spread, logged or compared", () => {
    const error = new Errors.RateLimitExceeded({ retryAfter: twelve })
    const fields = { _tag: "RateLimitExceeded", code: "rate_limit_exceeded", status: 429, retryAfter: twelve }
    assert.deepInclude<unknown>({ ...error }, fields)
    assert.match(inspect(error), /_tag: 'RateLimitExceeded'/)
    assert.strictEqual(error.message, "The rate limit is exceeded.")
    assert.notDeepEqual<unknown>(new Errors.NotFound({ message: "a" }), new Errors.Gone({ message: "a" }))
  })

  it.effect("has exactly code, message and status in its body, and its wait in Retry-After, for a derived client", () =>
    Effect.gen(function*() {
      const banned = new Errors.ApiKeyBanned({ message: "Banned.", retryAfter: Duration.millis(11_001) })
      const { error, json, response } = yield* passOn(banned)
      assert.deepStrictEqual(json, { code: "api_key_banned", message: "Banned.", status: 429 })
      assert.deepStrictEqual([response.status, response.headers["retry-after"]], [429, "12"])
      assert.deepStrictEqual(error, new Errors.ApiKeyBanned({ message: "Banned.", retryAfter: twelve }))
      for (const failure of [new Errors.RateLimitExceeded(), new Errors.NotFound({ message: "No." })] as const) {
        const passed = yield* passOn(failure)
        assert.isUndefined(passed.response.headers["retry-after"])
        assert.deepStrictEqual<unknown>(passed.error, failure)
      }
    }))

  it.effect("says that an unavailable service can be called again after a second, if nothing else is known", () =>
    Effect.gen(function*() {
      const { error, response } = yield* passOn(new Errors.ServiceUnavailable())
      assert.deepStrictEqual([response.headers["retry-after"], error], ["1", new Errors.ServiceUnavailable()])
    }))
})

describe("RetryAfter", () => {
  it.effect("reads seconds and dates, and takes an invalid value for no wait", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(Date.UTC(2030, 0, 1))
      const decode = Schema.decodeUnknownEffect(Errors.RetryAfter)
      const waits = { "12": 12, "Tue, 01 Jan 2030 00:01:00 GMT": 60, "Mon, 31 Dec 2029 00:00:00 GMT": 0, "soon": 0 }
      for (const [text, seconds] of Object.entries(waits)) {
        assert.strictEqual(Duration.toSeconds(yield* decode(text)), seconds, text)
      }
    }))
})
