/** Tests that errors of the client are safe to pass on to callers of another service. */
import { NodeHttpClient } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
import { FetchHttpClient, HttpServer } from "effect/http"
import * as Http from "effect/http-api"
import { AdminClient, type Options, PetstoreClient, PetstoreClientError } from "../../src/client/ClientExports.ts"
import { serve } from "../support/Process.ts"

const apiKey = Redacted.make("psk_secret")
const once = { times: 0, maxWait: 0 }

const failureOf = (options: Omit<Options, "apiKey">, layer: typeof FetchHttpClient.layer) =>
  Effect.gen(function*() {
    const client = yield* PetstoreClient.make({ apiKey, retry: once, ...options })
    const failure = yield* Effect.flip(client.create({ name: "Rex", categoryId: 1n }))
    if (failure._tag !== "PetstoreClientError") return yield* Effect.die(failure)
    return failure
  }).pipe(Effect.provide(layer))

const encode = Schema.encodeSync(PetstoreClientError)

const http = [
  ["fetch", FetchHttpClient.layer],
  ["Node's HTTP client", NodeHttpClient.layerNodeHttp],
  ["undici", NodeHttpClient.layerUndici]
] as const

describe("An error of the client", () => {
  it.live.each(http)("has no URL, host or cause in its encoded form, with %s", ([, layer]) =>
    Effect.gen(function*() {
      // No server listens at port 1.
      const error = yield* failureOf({ baseUrl: "http://127.0.0.1:1/tenant-7" }, layer)
      assert.match(error.message, /^POST http:\/\/127\.0\.0\.1:1\/tenant-7\/v1\/pets: /)
      assert.instanceOf(error.reason.cause, Error)
      const encoded = { _tag: "PetstoreClientError", reason: { _tag: "Unreachable", message: "The connection failed" } }
      assert.deepStrictEqual<unknown>(encode(error), encoded)
      assert.notMatch(JSON.stringify([error, error.reason]), /127|tenant|ECONN/)
    }))

  it.live("is 502 with tag, code, status, request id and wait in the response of another HttpApi", () =>
    Effect.gen(function*() {
      const origin = yield* serve((_, response) => {
        const headers = { "content-type": "application/json", "x-request-id": "7", "retry-after": "3" }
        response.writeHead(451, headers).end(`{"code":"later","message":"Later.","status":451}`)
      })
      const error = yield* failureOf({ baseUrl: origin }, FetchHttpClient.layer)
      class ShopApi extends Http.HttpApi.make("shop").add(
        Http.HttpApiGroup.make("shop", { topLevel: true }).add(
          Http.HttpApiEndpoint.get("pets", "/pets", { success: Schema.Void, error: PetstoreClientError })
        )
      ) {}
      const handlers = Http.HttpApiBuilder.group(
        ShopApi,
        "shop",
        (group) => group.handle("pets", () => Effect.fail(error))
      )
      const shop = yield* Effect.provide(Http.HttpApiTest.groups(ShopApi, ["shop"]), handlers)
      const response = yield* shop.pets({ responseMode: "response-only" })
      const reason = { _tag: "UndeclaredError", code: "later", message: "Later.", status: 451 }
      assert.strictEqual(response.status, 502)
      const { retryAfter, ...body } = JSON.parse(yield* response.text)
      assert.deepStrictEqual(body, { _tag: "PetstoreClientError", reason, requestId: "7" })
      assert.deepInclude(retryAfter, { _tag: "Millis", value: 3_000 })
    }).pipe(Effect.provide(HttpServer.layerServices)))

  it.live("names the method and the URL of a request that timed out, and the faults of a body", () =>
    Effect.gen(function*() {
      let isSilent = true
      const origin = yield* serve((_, response) => {
        if (!isSilent) response.setHeader("content-type", "application/json").writeHead(201).end(`{"id":"1"}`)
      })
      const late = yield* failureOf({ baseUrl: origin, timeout: "100 millis" }, FetchHttpClient.layer)
      assert.strictEqual(late.message, `POST ${origin}/v1/pets: No response within 100ms`)
      isSilent = false
      const wrong = yield* failureOf({ baseUrl: origin }, FetchHttpClient.layer)
      assert.include(wrong.message, "response.id: expected a whole number")
      assert.include(wrong.message, "response.name: required")
      for (const { reason } of [late, wrong]) assert.notInclude(reason.message, "127")
    }))

  const redirects = [302, 307].flatMap((status) => http.map(([name, layer]) => [status, name, layer] as const))
  it.live.each(redirects)(
    "names a redirect (%s) and its host alone, which %s does not follow",
    ([status, , layer]) =>
      Effect.gen(function*() {
        const followed: Array<string> = []
        const target = yield* serve((request, response) => {
          followed.push(request.url ?? "")
          response.setHeader("content-type", "application/json").end("[]")
        })
        const origin = yield* serve((_, response) =>
          response.writeHead(status, { location: `${target}/in?token=t` }).end()
        )
        const error = yield* failureOf({ baseUrl: origin }, layer)
        const expected = `POST ${origin}/v1/pets returned ${status}, a redirect to ${new URL(target).host}`
        assert.strictEqual(error.message, expected)
        const message = `The response is a redirect (${status}), which the client does not follow`
        assert.deepStrictEqual<unknown>(encode(error).reason, { _tag: "UnexpectedResponse", message, status })
        assert.isEmpty(followed)
      })
  )
})

describe("A base URL", () => {
  const urls = [
    "http://user:pa55@h.test",
    "http://pa55@h.test",
    "http://h.test?token=pa55",
    "http://h.test#pa55",
    "http://h.test?"
  ]
  it.effect.each(urls)(
    "with credentials, a query or a fragment is rejected without being printed: %s",
    (baseUrl) =>
      Effect.gen(function*() {
        const message = "TypeError: baseUrl: expected an http or https URL without credentials, query and fragment"
        for (const url of [baseUrl, new URL(baseUrl)]) {
          const build = Effect.all([
            Effect.exit(Effect.provide(PetstoreClient, PetstoreClient.layer({ baseUrl: url, apiKey }))),
            Effect.exit(Effect.provide(AdminClient, AdminClient.layer({ baseUrl: url, token: apiKey })))
          ])
          for (const exit of yield* build) {
            assert.include(String(exit), message)
            assert.notInclude(String(exit), "pa55")
          }
        }
      })
  )
})
