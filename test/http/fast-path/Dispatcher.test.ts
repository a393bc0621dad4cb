/** Tests that the fast path responds as HttpApi does: the same requests go over sockets and through HttpApi alone. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Tracer } from "effect"
import {
  HttpClient,
  HttpClientRequest,
  HttpRouter,
  HttpServer,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../../src/api-keys/ApiKeys.ts"
import { AdmissionControl } from "../../../src/http/admission/AdmissionControl.ts"
import { GracefulShutdown } from "../../../src/http/admission/GracefulShutdown.ts"
import * as ApiRoutes from "../../../src/http/ApiRoutes.ts"
import { routerConfig } from "../../../src/http/response/RoutePaths.ts"
import { RateLimiter } from "../../../src/rate-limit/RateLimiter.ts"
import { memory, Service, service } from "../../support/Harness.ts"

/** Makes a client of HttpApi without sockets, where the fast path serves no request. */
const httpApi = Effect.gen(function*() {
  const serve = yield* HttpRouter.toHttpEffect(ApiRoutes.layerMemory)
  const key = yield* Effect.flatMap(ApiKeys, (keys) => keys.issue({ name: "test", plan: "free" }))
  return {
    key: Redacted.value(key.key),
    client: HttpClient.make((request) =>
      serve.pipe(
        Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromClientRequest(request)),
        Effect.scoped,
        Effect.map((response) => HttpServerResponse.toClientResponse(response, { request })),
        Effect.orDie
      )
    )
  }
})

const post = (body: string) => ({ method: "POST", path: "/v1/pets", body } as const)
const get = (path: string) => ({ method: "GET", path, body: undefined } as const)
const requests = [
  post(`{"name":"Rex","categoryId":1}`),
  post(`{"status":"sold","name":"\\u0141ucja 🐈","categoryId":9223372036854775807,"more":[1]}`),
  post(` {"name" : "", "categoryId" : 1e3 , "status":"pending"} `),
  post(`{"name":"x","categoryId":1.5}`),
  post(`{"name":"x","name":"y","categoryId":1}`),
  post(`{"name":"\\u0000","categoryId":1}`),
  post(`\ufeff{"name":"x","categoryId":1}`),
  post("not JSON"),
  post("[".repeat(30_000) + "]".repeat(30_000)),
  post(""),
  ...[
    "",
    "?",
    "?limit=2",
    "?limit=0",
    "?limit=1&limit=2",
    "?limit=002",
    "?status=sold",
    "?status=lost",
    "?cursor=MQ",
    "?cursor=x",
    "?limit=1&status=sold",
    "?status=pending&cursor=MQ&limit=1",
    "?cursor=MQ&limit=1",
    "?limit=%32",
    "?other=1",
    "?limit",
    "?="
  ]
    .map((query) => get(`/v1/pets${query}`)),
  ...["1", "001", "-1", "+1", "4", "9223372036854775807", "9223372036854775808", "1?x=1", "%31", "x", ""]
    .map((id) => get(`/v1/pets/${id}`))
]

describe("Requests", () => {
  it.effect(
    "get the same responses on the fast path, when traced, and from HttpApi, including 429",
    () =>
      Effect.gen(function*() {
        yield* TestClock.setTime(1_763_700_000_000)
        const overSockets = Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          return yield* Effect.forEach([...requests, ...requests], ({ body, method, path }) =>
            Effect.map(
              call(path, {
                key,
                method,
                ...body !== undefined && { body, headers: { "content-type": "application/json" } }
              }),
              ({ headers, status, text }) => ({ path, body, status, text, headers: Object.fromEntries(headers) })
            ))
        })
        const fast = yield* Effect.provide(overSockets, Layer.fresh(service(memory)))
        // Effect's server serves traced requests, because it makes their spans.
        const tracer = Layer.succeed(Tracer.Tracer, Tracer.make({ span: (options) => new Tracer.NativeSpan(options) }))
        const traced = yield* Effect.provide(overSockets, Layer.fresh(Layer.provide(service(memory), tracer)))
        const reference = yield* Effect.gen(function*() {
          const { client, key } = yield* httpApi
          return yield* Effect.forEach([...requests, ...requests], ({ body, method, path }) =>
            HttpClientRequest.make(method)(`http://localhost${path}`).pipe(
              HttpClientRequest.setHeader("authorization", `Bearer ${key}`),
              body === undefined
                ? (request) =>
                  request
                : HttpClientRequest.bodyText(body, "application/json"),
              client.execute,
              Effect.flatMap((response) =>
                Effect.map(response.text, (text) => ({
                  path,
                  body,
                  status: response.status,
                  text,
                  headers: Object.fromEntries(Object.entries(response.headers))
                }))
              )
            ))
        }).pipe(
          Effect.provide([
            Layer.fresh(Layer.mergeAll(memory, RateLimiter.layerMemory)),
            Layer.succeed(HttpRouter.RouterConfig, routerConfig),
            HttpServer.layerServices,
            AdmissionControl.layer,
            GracefulShutdown.layer
          ])
        )
        // These headers differ between any two responses, or belong to the connection.
        const without = new Set([
          "x-request-id",
          "date",
          "connection",
          "keep-alive",
          "transfer-encoding",
          "content-length"
        ])
        const comparable = (responses: typeof fast) =>
          responses.map(({ headers, ...response }) => ({
            ...response,
            headers: Object.fromEntries(
              Object.entries(headers).filter(([name]) =>
                !without.has(name)
              ).toSorted(([a], [b]) => a < b ? -1 : 1)
            )
          }))
        assert.deepStrictEqual(comparable(fast), comparable(reference))
        assert.deepStrictEqual(comparable(traced), comparable(reference))
        assert.isAbove(fast.filter(({ status }) => status === 429).length, 5)
      }),
    30_000
  )
})
