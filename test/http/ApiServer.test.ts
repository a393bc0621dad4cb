/** Responses of the API port over sockets: client errors, headers, shutdown, CORS and pipelining. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { GracefulShutdown } from "../../src/http/Responses.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { assertCommonHeaders, assertError } from "../support/Assertions.ts"
import { memory, parseResponse, Service, service } from "../support/Harness.ts"

/** The stores in memory, where each read of one pet fails with a defect. */
const failingStore = Layer.effect(
  PetRepository,
  Effect.map(PetRepository, (pets) => ({ ...pets, find: () => Effect.die(new Error("secret")) }))
).pipe(Layer.provideMerge(memory))

const close = "Connection: close\r\n"
const hostAndClose = `Host: localhost\r\n${close}`
const chunks = "Transfer-Encoding: chunked\r\n"
const json = "Content-Type: application/json\r\n"

/** Requests as bytes, where `KEY` becomes a header with an API key, and the status, code and headers of the response. */
const requests: ReadonlyArray<
  readonly [
    name: string,
    bytes: string,
    status: number,
    code: string | undefined,
    headers?: Readonly<Record<string, string | RegExp>>
  ]
> = [
  ["a success", `GET /v1/pets HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 200, undefined, {
    "content-type": "application/json"
  }],
  ["a success in HTTP/1.0", "GET /v1/pets HTTP/1.0\r\nKEY\r\n", 200, undefined],
  ["a target in absolute form", `GET http://localhost/v1/pets HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 200, undefined],
  ["HEAD", `HEAD /v1/pets HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 200, undefined, { "content-length": "2" }],
  [
    "an ignored upgrade",
    `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\nKEY\r\n`,
    200,
    undefined
  ],
  ["OPTIONS", `OPTIONS /v1/pets HTTP/1.1\r\n${hostAndClose}\r\n`, 204, undefined, {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  [
    "an upgrade with a body",
    `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: x\r\n${json}Content-Length: 28\r\nKEY\r\n{"name":"a","categoryId":12}`,
    201,
    undefined
  ],
  ["OPTIONS of getPet", `OPTIONS /v1/pets/1 HTTP/1.1\r\n${hostAndClose}\r\n`, 204, undefined, {
    allow: "GET, HEAD, OPTIONS"
  }],
  ["OPTIONS of the server", `OPTIONS * HTTP/1.1\r\n${hostAndClose}\r\n`, 204, undefined, {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  ["OPTIONS of an unknown path", `OPTIONS /nowhere HTTP/1.1\r\n${hostAndClose}\r\n`, 404, "not_found"],
  ["a path similar to the OpenAPI document's", `GET /openapi_json HTTP/1.1\r\n${hostAndClose}\r\n`, 404, "not_found"],
  ["the OpenAPI document", `GET /openapi.json HTTP/1.1\r\n${hostAndClose}\r\n`, 200, undefined],
  ["a query that does not decode", `GET /v1/pets?limit=0 HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 400, "invalid_request"],
  ["an invalid cursor", `GET /v1/pets?cursor=Nw%3D%3D HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 400, "invalid_request"],
  ["a path that does not decode", `GET /v1/pets/x HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 400, "invalid_request", {
    sunset: /2030/
  }],
  [
    "a header that does not decode",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}Idempotency-Key: \r\nContent-Length: 27\r\nKEY\r\n{"name":"a","categoryId":12}`,
    400,
    "invalid_request"
  ],
  [
    "a body that does not decode",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}Content-Length: 2\r\nKEY\r\n{}`,
    400,
    "invalid_request"
  ],
  [
    "a byte order mark",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}Content-Length: 30\r\nKEY\r\n\xef\xbb\xbf{"name":"a","categoryId":12}`,
    400,
    "invalid_request"
  ],
  ["no key", `GET /v1/pets HTTP/1.1\r\n${hostAndClose}\r\n`, 401, "missing_api_key", { "www-authenticate": "Bearer" }],
  ["no key to getPet", `GET /v1/pets/1 HTTP/1.1\r\n${hostAndClose}\r\n`, 401, "missing_api_key", {
    deprecation: "@1795219200"
  }],
  [
    "an unknown key",
    `GET /v1/pets HTTP/1.1\r\n${hostAndClose}Authorization: Bearer x\r\n\r\n`,
    401,
    "invalid_api_key",
    {
      "www-authenticate": "Bearer"
    }
  ],
  ["an unknown path", `GET /nowhere HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 404, "not_found"],
  ["an unsupported method", `PUT /v1/pets HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 405, "method_not_allowed", {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  ["TRACE", `TRACE /v1/pets HTTP/1.1\r\n${hostAndClose}\r\n`, 405, "method_not_allowed"],
  ["CONNECT", `CONNECT localhost:80 HTTP/1.1\r\n${hostAndClose}\r\n`, 405, "method_not_allowed", {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  [
    "a body that is too large",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}Content-Length: 65537\r\nKEY\r\n${"x".repeat(65_537)}`,
    413,
    "payload_too_large"
  ],
  [
    "a chunked body that is too large",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}${chunks}KEY\r\n10001\r\n${"x".repeat(65_537)}\r\n0\r\n\r\n`,
    413,
    "payload_too_large"
  ],
  [
    "a body of another type",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}Content-Type: text/json\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  [
    "a body without a type",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}Content-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  [
    "a body of another charset",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}Content-Type: application/json; charset=utf-16\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  [
    "a compressed body",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}Content-Encoding: gzip\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  ["an expectation", `GET /v1/pets HTTP/1.1\r\n${hostAndClose}Expect: tea\r\nKEY\r\n`, 417, "expectation_failed"],
  [
    "a head that is too large",
    `GET /v1/pets HTTP/1.1\r\n${hostAndClose}X: ${"x".repeat(17_000)}\r\n\r\n`,
    431,
    "request_header_fields_too_large"
  ],
  [
    "a URL that is too long",
    `GET /${"x".repeat(17_000)} HTTP/1.1\r\n${hostAndClose}\r\n`,
    431,
    "request_header_fields_too_large"
  ],
  ["a defect", `GET /v1/pets/1 HTTP/1.1\r\n${hostAndClose}KEY\r\n`, 500, "internal_error", { sunset: /2030/ }],
  ["no Host", `GET /v1/pets HTTP/1.1\r\n${close}\r\n`, 400, "invalid_request"],
  ["two Hosts", `GET /v1/pets HTTP/1.1\r\nHost: a\r\n${hostAndClose}\r\n`, 400, "invalid_request"],
  ["an invalid Host", `GET /v1/pets HTTP/1.1\r\nHost: a/b\r\n${close}\r\n`, 400, "invalid_request"],
  ["bytes that are not HTTP", "\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request"],
  ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"],
  ...["0.9", "1.2", "2.0", "3.0"].map((version) =>
    [
      `a request of HTTP/${version}`,
      `GET /v1/pets HTTP/${version}\r\n${hostAndClose}KEY\r\n`,
      505,
      "http_version_not_supported"
    ] as const
  ),
  ["a request without a version", "GET /v1/pets\r\n\r\n", 505, "http_version_not_supported"],
  ["an invalid version", `GET /v1/pets HTTP/1.x\r\n${hostAndClose}\r\n`, 400, "invalid_request"],
  [
    "chunks in HTTP/1.0",
    `POST /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\n${json}${chunks}KEY\r\n1c\r\n{"name":"a","categoryId":12}\r\n0\r\n\r\n`,
    400,
    "invalid_request",
    { connection: "close" }
  ],
  [
    "an unknown transfer coding in HTTP/1.0",
    `GET /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: gzip\r\nKEY\r\n`,
    400,
    "invalid_request",
    { connection: "close" }
  ],
  ["an unknown method", `BREW /v1/pets HTTP/1.1\r\n${hostAndClose}\r\n`, 400, "invalid_request"],
  [
    "Content-Length with chunks",
    `POST /v1/pets HTTP/1.1\r\n${hostAndClose}Content-Length: 5\r\n${chunks}\r\n0\r\n\r\n`,
    400,
    "invalid_request"
  ],
  ["an invalid chunk", `POST /v1/pets HTTP/1.1\r\n${hostAndClose}${json}${chunks}KEY\r\nzz\r\n`, 400, "invalid_request"]
]

describe("A response of the API port has the common headers and, on failure, the Error body", () => {
  layer(Layer.fresh(service(failingStore)))((it) => {
    for (const [name, bytes, status, code, headers] of requests) {
      it.effect(`for ${name}: ${status}`, () =>
        Effect.gen(function*() {
          const { newKey, send } = yield* Service
          const response = yield* send(bytes.replace("KEY", `Authorization: Bearer ${yield* newKey}\r\n`))
          if (code === undefined) {
            assert.strictEqual(response.status, status, response.text)
            assertCommonHeaders(response)
          } else {
            assertError(response, status, code)
          }
          assert.notInclude(response.text, "secret")
          for (const [header, expected] of Object.entries(headers ?? {})) {
            const value = response.headers.get(header) ?? ""
            if (expected instanceof RegExp) assert.match(value, expected)
            else assert.strictEqual(value, expected)
          }
          if (bytes.startsWith("HEAD") || status === 204) assert.strictEqual(response.text, "")
          // An address may send 60 requests a minute.
          yield* TestClock.adjust("2 seconds")
        }))
    }
  })
})

describe("ApiServer", () => {
  layer(Layer.fresh(service(memory)))((it) => {
    const post = (key: string, body: string) =>
      `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Authorization: Bearer ${key}\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`

    it.effect("sends responses in the order of the requests, also before a client error on the same connection", () =>
      Effect.gen(function*() {
        const { newKey, send } = yield* Service
        const key = yield* newKey
        const next = [
          ["garbage\r\n\r\n", 400],
          [`GET /v1/pets HTTP/1.1\r\n${hostAndClose}Expect: tea\r\nAuthorization: Bearer ${key}\r\n\r\n`, 417],
          ["CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405],
          [`GET /v1/pets HTTP/1.1\r\n${hostAndClose}\r\n`, 401]
        ] as const
        for (const [bytes, status] of next) {
          const create = post(key, `{"name":"first","categoryId":1}`)
          const list = `GET /v1/pets?limit=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`
          for (const [before, statusBefore] of [[create, 201], [list, 200]] as const) {
            const { text, ...first } = yield* send(before.repeat(3) + bytes)
            const statuses = [first.status, ...text.matchAll(/HTTP\/1\.1 (\d+)/g).map(([, code]) => Number(code))]
            assert.deepStrictEqual(statuses, [statusBefore, statusBefore, statusBefore, status])
            if (before === create) {
              assert.match(text, new RegExp(`^{"id":\\d+,"name":"first","categoryId":1}HTTP/1.1 201 `))
              assert.match(text, new RegExp(`{"id":\\d+,"name":"first","categoryId":1}HTTP/1.1 ${status} `))
            }
          }
        }
      }))

    it.effect("rejects HEAD without a body, and treats every encoding of a path alike", () =>
      Effect.gen(function*() {
        const { call, newKey, send } = yield* Service
        const key = yield* newKey
        const head = yield* send(
          `HEAD /v1/pets/1 HTTP/1.1\r\n${hostAndClose}Expect: tea\r\nAuthorization: Bearer ${key}\r\n\r\n`
        )
        assert.deepStrictEqual([head.status, head.text], [417, ""])
        assert.isNotNull(head.headers.get("deprecation"))
        for (const path of ["/v1/%70ets/1", "/v1/pets/1?x#y"]) {
          assert.isNotNull((yield* call(path, { key })).headers.get("sunset"), path)
          assertError(yield* call(path, { key, method: "PUT" }), 405, "method_not_allowed")
        }
        assertError(yield* send(`GET * HTTP/1.1\r\n${hostAndClose}\r\n`), 404, "not_found")
        for (const target of ["/v1/pets;limit=1", "/v1/pets/1;a", "/v1/pets/1#a", "/v1/pets;?limit=1"]) {
          assertError(
            yield* send(`GET ${target} HTTP/1.1\r\n${hostAndClose}Authorization: Bearer ${key}\r\n\r\n`),
            400,
            "invalid_request"
          )
        }
      }))

    it.effect("responds to a client that half-closes after its request", () =>
      Effect.gen(function*() {
        const { call, sendAndHalfClose, newUnlimitedKey } = yield* Service
        const key = yield* newUnlimitedKey
        const requests = [
          post(key, `{"name":"half-closed","categoryId":1}`),
          post(key, `{ "name":"half-closed","categoryId":1}`)
        ]
        for (const request of requests) {
          const responses = yield* Effect.all(Array.from({ length: 20 }, () => sendAndHalfClose(request)), {
            concurrency: 4
          })
          assert.deepStrictEqual([...new Set(responses.map(({ status }) => status))], [201])
        }
        const { text } = yield* sendAndHalfClose(requests.join(""))
        assert.lengthOf(text.split("HTTP/1.1 201"), 2)
        const listed = yield* call("/v1/pets?limit=100", { key })
        assert.strictEqual(listed.text.split("half-closed").length - 1, 42)
      }))

    it.effect("reads media types and codings in any valid form, and in linear time", () =>
      Effect.gen(function*() {
        const { newKey, send } = yield* Service
        const [body, key] = [`{"name":"cased","categoryId":1}`, yield* newKey]
        const length = `Content-Length: ${body.length}\r\n`
        const create = (fields: string, sent = body) =>
          send(`POST /v1/pets HTTP/1.1\r\n${hostAndClose}Authorization: Bearer ${key}\r\n${fields}\r\n${sent}`)
        const inChunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
        const responses = yield* Effect.all([
          create(`${json}Transfer-Encoding: Chunked\r\n`, inChunks),
          create(`${json}Content-Encoding: Identity\r\n${length}`),
          ...["Application/JSON", "application/json;", `application/json ; ;charset="UTF-8" ;`].map((type) =>
            create(`Content-Type: ${type}\r\n${length}`)
          )
        ])
        assert.deepStrictEqual(responses.map(({ status }) => status), [201, 201, 201, 201, 201])
        const long = yield* create(`Content-Type: application/json${" ; ".repeat(5_000)}x\r\n${length}`)
        assertError(long, 415, "unsupported_media_type")
      }))

    it.effect("responds to an invalid body with an error of its request, charged to the key and not to the address", () =>
      Effect.gen(function*() {
        const { call, sendWithDrip, sendAndHalfClose, newUnlimitedKey, send } = yield* Service
        const key = yield* newUnlimitedKey
        const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}X-Request-Id: mine\r\n` +
          `Authorization: Bearer ${key}\r\n`
        const address = Effect.map(call("/nowhere"), ({ headers }) => Number(headers.get("x-ratelimit-remaining")))
        const before = yield* address
        const responses = yield* Effect.all([
          sendAndHalfClose(`${head}Content-Length: 30\r\n\r\n{`),
          sendAndHalfClose(`${head}Content-Length: 30\r\n\r\n`),
          sendAndHalfClose(`${head}Expect: 100-continue\r\nContent-Length: 30\r\n\r\n{`),
          sendAndHalfClose(`${head}${chunks}\r\n5\r\n{`),
          sendWithDrip(`${head}${chunks}\r\n`, "zz\r\n"),
          sendWithDrip(`${head}${chunks}\r\nzz\r\n`, "zz\r\n"),
          send(`${head}${chunks}\r\nzz\r\n${"x".repeat(1_000_000)}`),
          send(`${post(key, `{"name":"before","categoryId":1}`)}${head}${chunks}\r\nzz\r\n`),
          send(`${head}${chunks}\r\n1;${"x".repeat(20_000)}\r\n{\r\n`)
        ], { concurrency: "unbounded" })
        for (const [index, first] of responses.entries()) {
          // A 100 Continue, or the response to the request before, comes first in two cases.
          const isFirst = first.status !== 100 && first.status !== 201
          const { headers, status, text } = isFirst
            ? first
            : parseResponse(first.text.slice(first.text.indexOf("HTTP/1.1")))
          assert.deepStrictEqual([status, headers.get("x-request-id")], [index === 8 ? 413 : 400, "mine"], text)
          assert.strictEqual(headers.get("x-ratelimit-limit"), "2000000000")
          assert.deepStrictEqual(JSON.parse(text).status, status)
        }
        assert.strictEqual(yield* address, before - 1)
      }))

    it.effect("rejects a body that is announced as too large, or has an unknown coding, without reading it", () =>
      Effect.gen(function*() {
        const { newKey, send } = yield* Service
        const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Authorization: Bearer ${yield* newKey}\r\n`
        assertError(yield* send(`${head}Content-Length: 65537\r\n\r\n`), 413, "payload_too_large")
        assertError(
          yield* send(`${head}${close}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`),
          415,
          "unsupported_media_type"
        )
      }))

    it.effect("returns 429 to a key, a banned key and an address over their limits, and 422 for a reused idempotency key", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const [key, otherKey] = [yield* newKey, yield* newKey]
        const create = (name: string) =>
          call("/v1/pets", {
            key: otherKey,
            method: "POST",
            body: `{"name":"${name}","categoryId":1}`,
            headers: { "content-type": "application/json", "idempotency-key": "reused" }
          })
        yield* create("a")
        assertError(yield* create("b"), 422, "idempotency_key_reused")
        for (let i = 0; i < 60; i++) yield* call("/v1/pets?limit=1", { key })
        assertError(yield* call("/v1/pets", { key }), 429, "rate_limit_exceeded")
        for (let i = 0; i < 58; i++) yield* call("/v1/pets", { key })
        assertError(yield* call("/v1/pets", { key }), 429, "api_key_banned")
        for (let i = 0; i < 60; i++) yield* call("/nowhere")
        assertError(yield* call("/nowhere"), 429, "rate_limit_exceeded")
        yield* TestClock.adjust("1 minute")
      }))

    it.effect("serves no request after an HTTP/1.0 request with Transfer-Encoding (RFC 9112 §6.1)", () =>
      Effect.gen(function*() {
        const { call, sendWithDrip, newUnlimitedKey, send } = yield* Service
        const key = yield* newUnlimitedKey
        const head = `POST /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\n${json}Authorization: Bearer ${key}\r\n`
        const faulty = `${head}${chunks}\r\n0\r\n\r\n`
        const smuggled = post(key, `{"name":"smuggled","categoryId":1}`)
        // The smuggled request arrives in the same segment, and half a second later.
        for (const response of [yield* send(faulty + smuggled), yield* sendWithDrip(faulty, smuggled)]) {
          assertError(response, 400, "invalid_request")
          assert.strictEqual(response.headers.get("connection"), "close")
        }
        assert.notInclude((yield* call("/v1/pets?limit=100", { key })).text, "smuggled")
      }))

    it.effect("rejects HEAD with an invalid head without a body", () =>
      Effect.gen(function*() {
        const { send } = yield* Service
        const { status, text } = yield* send("HEAD /v1/pets HTTP/1.1\r\nHost: a/b\r\n\r\n")
        assert.deepStrictEqual([status, text], [400, ""])
      }))

    it.effect("closes the connection after a client error, even if the client does not", () =>
      Effect.gen(function*() {
        const { sendHalfOpen } = yield* Service
        const response = yield* sendHalfOpen("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assertError(response, 405, "method_not_allowed")
      }))

    it.effect("keeps the connection open after an error if the whole request has arrived", () =>
      Effect.gen(function*() {
        const { newKey, send } = yield* Service
        const body = `{"name":1,"categoryId":1}`
        const create = (header: string) =>
          `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${header}Content-Length: ${body.length}\r\n\r\n${body}`
        const key = `Authorization: Bearer ${yield* newKey}\r\n`
        const { status, text } = yield* send(
          [create(""), create(json), create(key), create(key + json), create(`${json}Connection: close\r\n`)].join("")
        )
        const statuses = [status, ...text.matchAll(/HTTP\/1\.1 (\d+)/g).map(([, status]) => Number(status))]
        assert.deepStrictEqual(statuses, [401, 401, 415, 400, 401])
      }))

    it.effect("uses the client's X-Request-Id if it is valid, and generates one otherwise", () =>
      Effect.gen(function*() {
        const { call, newUnlimitedKey } = yield* Service
        const key = yield* newUnlimitedKey
        const idOf = (id: string) =>
          Effect.map(
            call("/v1/pets", { key, headers: { "x-request-id": id } }),
            ({ headers }) => headers.get("x-request-id")
          )
        for (const id of ["a", "01a1fd7a-b6a8-77a5-8e19-8b5b27105fa0", "x".repeat(64), "a.b:c_d-1"]) {
          assert.strictEqual(yield* idOf(id), id)
        }
        for (const id of ["", "x".repeat(65), "a b", `"a"`, "a,b", "\u00e9"]) {
          assert.match((yield* idOf(id)) ?? "", /^[0-9a-f-]{36}$/)
        }
        const ids = yield* Effect.replicateEffect(idOf(""), 50)
        assert.strictEqual(new Set(ids).size, 50)
        // An id does not reveal the number of requests: no part of it is constant, and the last part does not only grow.
        const parts = ids.map((id) => (id ?? "").split("-"))
        for (const part of [0, 1, 4]) assert.strictEqual(new Set(parts.map((id) => id[part])).size, 50)
        const last = parts.map((id) => parseInt(id[4] ?? "", 16))
        assert.isAbove(last.filter((id, index) => index > 0 && id < (last[index - 1] ?? 0)).length, 5)
      }))

    it.effect("announces the deprecation of getPet in every response of its path", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        const created = yield* call("/v1/pets", {
          key,
          method: "POST",
          body: `{"name":"Rex","categoryId":1}`,
          headers: { "content-type": "application/json" }
        })
        const path = created.headers.get("location") ?? ""
        assert.match(path, /^\/v1\/pets\/\d+$/)
        const requests: ReadonlyArray<readonly [string, RequestInit & { key?: string }, number]> = [
          [path, { key }, 200],
          ["/v1/pets/999", { key }, 404],
          ["/v1/pets/x", { key }, 400],
          ["/v1/pets/x?y", {}, 401],
          [path, { method: "PUT" }, 405]
        ]
        for (const [to, options, status] of requests) {
          const { headers, ...response } = yield* call(to, options)
          assert.strictEqual(response.status, status)
          assert.strictEqual(headers.get("deprecation"), "@1795219200")
          assert.strictEqual(headers.get("sunset"), "Thu, 05 Dec 2030 00:00:00 GMT")
          assert.strictEqual(headers.get("link"), `</v1/pets>; rel="successor-version"`)
        }
        assert.isNull((yield* call("/v1/pets", { key })).headers.get("deprecation"))
      }))

    it.effect("sends no CORS headers unless origins are configured", () =>
      Effect.gen(function*() {
        const { call } = yield* Service
        for (const method of ["GET", "OPTIONS"]) {
          const { headers } = yield* call("/v1/pets", { method, headers: { origin: "https://shop.example" } })
          for (const name of headers.keys()) assert.notMatch(name, /^(access-control-|vary)/)
        }
      }))
  })

  const origins = { CORS_ORIGINS: "https://shop.example, https://other.example" }
  layer(Layer.fresh(service(memory, origins)))((it) => {
    it.effect("charges no preflights of pages of configured origins", () =>
      Effect.gen(function*() {
        const { call } = yield* Service
        const sendPreflight = (origin: string) =>
          call("/v1/pets", { method: "OPTIONS", headers: { origin, "access-control-request-method": "GET" } })
        for (let i = 0; i < 100; i++) assert.strictEqual((yield* sendPreflight("https://shop.example")).status, 204)
        for (let i = 0; i < 60; i++) assert.strictEqual((yield* sendPreflight("https://none.example")).status, 204)
        const rejected = yield* sendPreflight("https://none.example")
        assertError(rejected, 429, "rate_limit_exceeded")
        assert.strictEqual(rejected.headers.get("connection"), "close")
        assert.strictEqual((yield* sendPreflight("https://shop.example")).status, 204)
        yield* TestClock.adjust("1 minute")
      }))

    it.effect("allows calls from pages of configured origins, and of no others", () =>
      Effect.gen(function*() {
        const { call, newKey, send } = yield* Service
        const key = yield* newKey
        const preflight = yield* call("/v1/pets", {
          method: "OPTIONS",
          headers: { "origin": "https://shop.example", "access-control-request-method": "POST" }
        })
        assert.strictEqual(preflight.status, 204)
        assert.strictEqual(preflight.headers.get("access-control-allow-origin"), "https://shop.example")
        assert.strictEqual(preflight.headers.get("access-control-allow-methods"), "GET, HEAD, POST, OPTIONS")
        assert.include(
          preflight.headers.get("access-control-allow-headers"),
          "Authorization, Content-Type, Idempotency-Key"
        )
        assert.strictEqual(preflight.headers.get("vary"), "Origin")
        assertCommonHeaders(preflight)
        const response = yield* call("/v1/pets", { key, headers: { origin: "https://other.example" } })
        assert.strictEqual(response.headers.get("access-control-allow-origin"), "https://other.example")
        assert.include(response.headers.get("access-control-expose-headers"), "Retry-After")
        const otherOrigin = yield* call("/v1/pets", { key, headers: { origin: "https://unlisted.example" } })
        assert.isNull(otherOrigin.headers.get("access-control-allow-origin"))
        assert.strictEqual(otherOrigin.headers.get("vary"), "Origin")
        assert.strictEqual((yield* send("garbage\r\n\r\n")).headers.get("vary"), "Origin")
      }))
  })
})

describe("A draining service", () => {
  const draining = Layer.fresh(service(memory, {}, Layer.succeed(GracefulShutdown, { begun: true })))
  it.effect("closes each connection after its response: after a success, an error and a client error", () =>
    Effect.gen(function*() {
      const { newKey, send } = yield* Service
      const authorization = `Authorization: Bearer ${yield* newKey}\r\n`
      for (const rest of [authorization, "", "Bad Header: 1\r\n"]) {
        const response = yield* send(`GET /v1/pets HTTP/1.1\r\nHost: localhost\r\n${rest}\r\n`)
        assert.strictEqual(response.headers.get("connection"), "close")
      }
    }).pipe(Effect.provide(draining)))
})

describe("CORS_ORIGINS", () => {
  it.effect("is rejected if an entry is not an origin", () =>
    Effect.gen(function*() {
      for (const CORS_ORIGINS of ["shop", "https://shop.example/", "https://a.example,ftp"]) {
        const failed = yield* Effect.flip(Layer.build(Layer.fresh(service(memory, { CORS_ORIGINS }))))
        assert.include(String(failed), "CORS_ORIGINS")
      }
    }))
})

describe("getPet", () => {
  it.effect("returns 410 to every authenticated request from 5 December 2030 on", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(Date.parse("2030-12-04T23:59:59.999Z"))
      yield* Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const key = yield* newKey
        assertError(yield* call("/v1/pets/1", { key }), 404, "not_found")
        yield* TestClock.adjust(1)
        assertError(yield* call("/v1/pets/1", { key }), 410, "gone")
        assertError(yield* call("/v1/pets/x", { key }), 410, "gone")
        assertError(yield* call("/v1/pets/1"), 401, "missing_api_key")
        assert.strictEqual((yield* call("/v1/pets", { key })).status, 200)
      }).pipe(Effect.provide(Layer.fresh(service(memory))))
    }))
})

describe("A burst of 500 requests on one connection", () => {
  /** The stores in memory, where a create takes longer than the requests after it. */
  const slowStore = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({
      ...pets,
      create: (pet) => Effect.andThen(Effect.sleep("1 millis"), pets.create(pet))
    }))
  ).pipe(Layer.provideMerge(memory))

  it.live("gets all responses in order, and a request after a create starts when the create is done (RFC 9112 §9.3.2)", () =>
    Effect.gen(function*() {
      const { newUnlimitedKey, send } = yield* Service
      const head = ` HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${yield* newUnlimitedKey}\r\n`
      const burst = Array.from({ length: 250 }, (_, index) => {
        const body = `{"name":"${index}","categoryId":1}`
        return `POST /v1/pets${head}${json}Content-Length: ${body.length}\r\n\r\n${body}GET /v1/pets/${
          index + 1
        }${head}\r\n`
      })
      const { text } = yield* send(`${burst.join("")}GET /v1/pets?limit=100${head}Connection: close\r\n\r\n`)
      const responses = text.split(/(?=HTTP\/1\.1 )/)
      assert.lengthOf(responses, 501)
      for (const [index] of burst.entries()) {
        assert.match(responses[2 * index] ?? "", new RegExp(`"name":"${index}"`))
        assert.match(responses[2 * index + 1] ?? "", new RegExp(`200 OK[^]*"name":"${index}"`))
      }
      assert.match(responses[500] ?? "", /200 OK/)
    }).pipe(Effect.provide(Layer.fresh(service(slowStore)))))
})
