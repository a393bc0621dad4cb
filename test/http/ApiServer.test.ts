/** Responses of the API port over sockets: client errors, headers, shutdown, CORS and pipelining. */
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Fiber, Layer, Tracer } from "effect"
import { TestClock } from "effect/testing"
import { AdmissionControl } from "../../src/http/node/AdmissionControl.ts"
import { GracefulShutdown } from "../../src/http/node/GracefulShutdown.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { assertCommonHeaders, assertError } from "../support/Assertions.ts"
import { memory, parseAnswer, Service, service } from "../support/Harness.ts"

const fails = Layer.effect(
  PetRepository,
  Effect.map(PetRepository, (pets) => ({ ...pets, find: () => Effect.die(new Error("secret")) }))
).pipe(Layer.provideMerge(memory))

const end = "Connection: close\r\n"
const ok = `Host: localhost\r\n${end}`
const chunks = "Transfer-Encoding: chunked\r\n"
const json = "Content-Type: application/json\r\n"

/** Bytes to send, with the place for a key; the answer's status and code; other headers it must have. */
const ways: ReadonlyArray<
  readonly [
    name: string,
    bytes: string,
    status: number,
    code: string | undefined,
    headers?: Readonly<Record<string, string | RegExp>>
  ]
> = [
  ["a success", `GET /v1/pets HTTP/1.1\r\n${ok}KEY\r\n`, 200, undefined, { "content-type": "application/json" }],
  ["a success in HTTP/1.0", "GET /v1/pets HTTP/1.0\r\nKEY\r\n", 200, undefined],
  ["a target in absolute form", `GET http://localhost/v1/pets HTTP/1.1\r\n${ok}KEY\r\n`, 200, undefined],
  ["HEAD", `HEAD /v1/pets HTTP/1.1\r\n${ok}KEY\r\n`, 200, undefined, { "content-length": "2" }],
  [
    "an upgrade, which is ignored",
    `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\nKEY\r\n`,
    200,
    undefined
  ],
  ["OPTIONS", `OPTIONS /v1/pets HTTP/1.1\r\n${ok}\r\n`, 204, undefined, { allow: "GET, HEAD, POST, OPTIONS" }],
  [
    "an upgrade with a body",
    `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: x\r\n${json}Content-Length: 28\r\nKEY\r\n{"name":"a","categoryId":12}`,
    201,
    undefined
  ],
  ["OPTIONS of getPet", `OPTIONS /v1/pets/1 HTTP/1.1\r\n${ok}\r\n`, 204, undefined, { allow: "GET, HEAD, OPTIONS" }],
  ["OPTIONS of everything", `OPTIONS * HTTP/1.1\r\n${ok}\r\n`, 204, undefined, { allow: "GET, HEAD, POST, OPTIONS" }],
  ["OPTIONS of nothing", `OPTIONS /nowhere HTTP/1.1\r\n${ok}\r\n`, 404, "not_found"],
  ["a path like that of the document", `GET /openapi_json HTTP/1.1\r\n${ok}\r\n`, 404, "not_found"],
  ["the document", `GET /openapi.json HTTP/1.1\r\n${ok}\r\n`, 200, undefined],
  ["a query that does not decode", `GET /v1/pets?limit=0 HTTP/1.1\r\n${ok}KEY\r\n`, 400, "invalid_request"],
  ["a cursor that is none", `GET /v1/pets?cursor=Nw%3D%3D HTTP/1.1\r\n${ok}KEY\r\n`, 400, "invalid_request"],
  ["a path that does not decode", `GET /v1/pets/x HTTP/1.1\r\n${ok}KEY\r\n`, 400, "invalid_request", {
    sunset: /2030/
  }],
  [
    "a header that does not decode",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}Idempotency-Key: \r\nContent-Length: 27\r\nKEY\r\n{"name":"a","categoryId":12}`,
    400,
    "invalid_request"
  ],
  [
    "a body that does not decode",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}Content-Length: 2\r\nKEY\r\n{}`,
    400,
    "invalid_request"
  ],
  [
    "a byte order mark",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}Content-Length: 30\r\nKEY\r\n\xef\xbb\xbf{"name":"a","categoryId":12}`,
    400,
    "invalid_request"
  ],
  ["no key", `GET /v1/pets HTTP/1.1\r\n${ok}\r\n`, 401, "missing_api_key", { "www-authenticate": "Bearer" }],
  ["no key to getPet", `GET /v1/pets/1 HTTP/1.1\r\n${ok}\r\n`, 401, "missing_api_key", { deprecation: "@1795219200" }],
  ["a wrong key", `GET /v1/pets HTTP/1.1\r\n${ok}Authorization: Bearer x\r\n\r\n`, 401, "invalid_api_key", {
    "www-authenticate": "Bearer"
  }],
  ["no such path", `GET /nowhere HTTP/1.1\r\n${ok}KEY\r\n`, 404, "not_found"],
  ["a wrong method", `PUT /v1/pets HTTP/1.1\r\n${ok}KEY\r\n`, 405, "method_not_allowed", {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  ["TRACE", `TRACE /v1/pets HTTP/1.1\r\n${ok}\r\n`, 405, "method_not_allowed"],
  ["CONNECT", `CONNECT localhost:80 HTTP/1.1\r\n${ok}\r\n`, 405, "method_not_allowed", {
    allow: "GET, HEAD, POST, OPTIONS"
  }],
  [
    "a body too large",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}Content-Length: 65537\r\nKEY\r\n${"x".repeat(65_537)}`,
    413,
    "payload_too_large"
  ],
  [
    "a chunked body too large",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}${chunks}KEY\r\n10001\r\n${"x".repeat(65_537)}\r\n0\r\n\r\n`,
    413,
    "payload_too_large"
  ],
  [
    "a body of another type",
    `POST /v1/pets HTTP/1.1\r\n${ok}Content-Type: text/json\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  ["a body of no type", `POST /v1/pets HTTP/1.1\r\n${ok}Content-Length: 2\r\nKEY\r\n{}`, 415, "unsupported_media_type"],
  [
    "a body of another charset",
    `POST /v1/pets HTTP/1.1\r\n${ok}Content-Type: application/json; charset=utf-16\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  [
    "a compressed body",
    `POST /v1/pets HTTP/1.1\r\n${ok}${json}Content-Encoding: gzip\r\nContent-Length: 2\r\nKEY\r\n{}`,
    415,
    "unsupported_media_type"
  ],
  ["an expectation", `GET /v1/pets HTTP/1.1\r\n${ok}Expect: tea\r\nKEY\r\n`, 417, "expectation_failed"],
  [
    "a head too large",
    `GET /v1/pets HTTP/1.1\r\n${ok}X: ${"x".repeat(17_000)}\r\n\r\n`,
    431,
    "request_header_fields_too_large"
  ],
  ["a URL too long", `GET /${"x".repeat(17_000)} HTTP/1.1\r\n${ok}\r\n`, 431, "request_header_fields_too_large"],
  ["a defect", `GET /v1/pets/1 HTTP/1.1\r\n${ok}KEY\r\n`, 500, "internal_error", { sunset: /2030/ }],
  ["no Host", `GET /v1/pets HTTP/1.1\r\n${end}\r\n`, 400, "invalid_request"],
  ["two Hosts", `GET /v1/pets HTTP/1.1\r\nHost: a\r\n${ok}\r\n`, 400, "invalid_request"],
  ["a Host that is none", `GET /v1/pets HTTP/1.1\r\nHost: a/b\r\n${end}\r\n`, 400, "invalid_request"],
  ["garbage", "\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request"],
  ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"],
  ...["0.9", "1.2", "2.0", "3.0"].map((version) =>
    [
      `a request of HTTP/${version}`,
      `GET /v1/pets HTTP/${version}\r\n${ok}KEY\r\n`,
      505,
      "http_version_not_supported"
    ] as const
  ),
  ["a request without a version", "GET /v1/pets\r\n\r\n", 505, "http_version_not_supported"],
  ["a version that is none", `GET /v1/pets HTTP/1.x\r\n${ok}\r\n`, 400, "invalid_request"],
  [
    "chunks in HTTP/1.0",
    `POST /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\n${json}${chunks}KEY\r\n1c\r\n{"name":"a","categoryId":12}\r\n0\r\n\r\n`,
    400,
    "invalid_request",
    { connection: "close" }
  ],
  [
    "a transfer coding in HTTP/1.0 that is not known",
    `GET /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: gzip\r\nKEY\r\n`,
    400,
    "invalid_request",
    { connection: "close" }
  ],
  ["an unknown method", `BREW /v1/pets HTTP/1.1\r\n${ok}\r\n`, 400, "invalid_request"],
  [
    "a length beside chunks",
    `POST /v1/pets HTTP/1.1\r\n${ok}Content-Length: 5\r\n${chunks}\r\n0\r\n\r\n`,
    400,
    "invalid_request"
  ],
  ["chunks that are none", `POST /v1/pets HTTP/1.1\r\n${ok}${json}${chunks}KEY\r\nzz\r\n`, 400, "invalid_request"]
]

describe("Every answer carries what the contract says", () => {
  layer(Layer.fresh(service(fails)))((it) => {
    for (const [name, bytes, status, code, headers] of ways) {
      it.effect(`to ${name}: ${status}`, () =>
        Effect.gen(function*() {
          const { newKey, raw } = yield* Service
          const answer = yield* raw(bytes.replace("KEY", `Authorization: Bearer ${yield* newKey}\r\n`))
          if (code === undefined) {
            assert.strictEqual(answer.status, status, answer.text)
            assertCommonHeaders(answer)
          } else {
            assertError(answer, status, code)
          }
          assert.notInclude(answer.text, "secret")
          for (const [header, expected] of Object.entries(headers ?? {})) {
            const given = answer.headers.get(header) ?? ""
            if (expected instanceof RegExp) assert.match(given, expected)
            else assert.strictEqual(given, expected)
          }
          if (bytes.startsWith("HEAD") || status === 204) assert.strictEqual(answer.text, "")
          // An address has 60 a minute.
          yield* TestClock.adjust("2 seconds")
        }))
    }
  })
})

describe("The edge", () => {
  layer(Layer.fresh(service(memory)))((it) => {
    const post = (key: string, body: string) =>
      `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Authorization: Bearer ${key}\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`

    it.effect("answers in the order of the requests on a connection, also where the next is no request", () =>
      Effect.gen(function*() {
        const { newKey, raw } = yield* Service
        const key = yield* newKey
        const next = [
          ["garbage\r\n\r\n", 400],
          [`GET /v1/pets HTTP/1.1\r\n${ok}Expect: tea\r\nAuthorization: Bearer ${key}\r\n\r\n`, 417],
          ["CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405],
          [`GET /v1/pets HTTP/1.1\r\n${ok}\r\n`, 401]
        ] as const
        for (const [bytes, status] of next) {
          const added = post(key, `{"name":"first","categoryId":1}`)
          const got = `GET /v1/pets?limit=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`
          for (const [before, statusBefore] of [[added, 201], [got, 200]] as const) {
            const { text, ...first } = yield* raw(before.repeat(3) + bytes)
            const statuses = [first.status, ...text.matchAll(/HTTP\/1\.1 (\d+)/g).map(([, code]) => Number(code))]
            assert.deepStrictEqual(statuses, [statusBefore, statusBefore, statusBefore, status])
            if (before === added) {
              assert.match(text, new RegExp(`^{"id":\\d+,"name":"first","categoryId":1}HTTP/1.1 201 `))
              assert.match(text, new RegExp(`{"id":\\d+,"name":"first","categoryId":1}HTTP/1.1 ${status} `))
            }
          }
        }
      }))

    it.effect("refuses HEAD without a body, and on every spelling of a path as on the path", () =>
      Effect.gen(function*() {
        const { call, newKey, raw } = yield* Service
        const key = yield* newKey
        const head = yield* raw(`HEAD /v1/pets/1 HTTP/1.1\r\n${ok}Expect: tea\r\nAuthorization: Bearer ${key}\r\n\r\n`)
        assert.deepStrictEqual([head.status, head.text], [417, ""])
        assert.isNotNull(head.headers.get("deprecation"))
        for (const path of ["/v1/%70ets/1", "/v1/pets/1?x#y"]) {
          assert.isNotNull((yield* call(path, { key })).headers.get("sunset"), path)
          assertError(yield* call(path, { key, method: "PUT" }), 405, "method_not_allowed")
        }
        assertError(yield* raw(`GET * HTTP/1.1\r\n${ok}\r\n`), 404, "not_found")
        for (const target of ["/v1/pets;limit=1", "/v1/pets/1;a", "/v1/pets/1#a", "/v1/pets;?limit=1"]) {
          assertError(
            yield* raw(`GET ${target} HTTP/1.1\r\n${ok}Authorization: Bearer ${key}\r\n\r\n`),
            400,
            "invalid_request"
          )
        }
      }))

    it.effect("answers who says that nothing more comes, on both ways", () =>
      Effect.gen(function*() {
        const { call, ended, newEndlessKey: endless } = yield* Service
        const key = yield* endless
        const requests = [post(key, `{"name":"ended","categoryId":1}`), post(key, `{ "name":"ended","categoryId":1}`)]
        for (const request of requests) {
          const answers = yield* Effect.all(Array.from({ length: 20 }, () => ended(request)), { concurrency: 4 })
          assert.deepStrictEqual([...new Set(answers.map(({ status }) => status))], [201])
        }
        const { text } = yield* ended(requests.join(""))
        assert.lengthOf(text.split("HTTP/1.1 201"), 2)
        const listed = yield* call("/v1/pets?limit=100", { key })
        assert.strictEqual(listed.text.split("ended").length - 1, 42)
      }))

    it.effect("reads types and codings however they are written, and is not held up by any", () =>
      Effect.gen(function*() {
        const { newKey, raw } = yield* Service
        const [body, key] = [`{"name":"cased","categoryId":1}`, yield* newKey]
        const length = `Content-Length: ${body.length}\r\n`
        const add = (fields: string, sent = body) =>
          raw(`POST /v1/pets HTTP/1.1\r\n${ok}Authorization: Bearer ${key}\r\n${fields}\r\n${sent}`)
        const inChunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
        const answers = yield* Effect.all([
          add(`${json}Transfer-Encoding: Chunked\r\n`, inChunks),
          add(`${json}Content-Encoding: Identity\r\n${length}`),
          ...["Application/JSON", "application/json;", `application/json ; ;charset="UTF-8" ;`].map((type) =>
            add(`Content-Type: ${type}\r\n${length}`)
          )
        ])
        assert.deepStrictEqual(answers.map(({ status }) => status), [201, 201, 201, 201, 201])
        const long = yield* add(`Content-Type: application/json${" ; ".repeat(5_000)}x\r\n${length}`)
        assertError(long, 415, "unsupported_media_type")
      }))

    it.effect("tells the fault of a body as the answer to its request: charged to the key, and to it alone", () =>
      Effect.gen(function*() {
        const { call, drip, ended, newEndlessKey: endless, raw } = yield* Service
        const key = yield* endless
        const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}X-Request-Id: mine\r\n` +
          `Authorization: Bearer ${key}\r\n`
        const address = Effect.map(call("/nowhere"), ({ headers }) => Number(headers.get("x-ratelimit-remaining")))
        const before = yield* address
        const answers = yield* Effect.all([
          ended(`${head}Content-Length: 30\r\n\r\n{`),
          ended(`${head}Content-Length: 30\r\n\r\n`),
          ended(`${head}Expect: 100-continue\r\nContent-Length: 30\r\n\r\n{`),
          ended(`${head}${chunks}\r\n5\r\n{`),
          drip(`${head}${chunks}\r\n`, "zz\r\n"),
          drip(`${head}${chunks}\r\nzz\r\n`, "zz\r\n"),
          raw(`${head}${chunks}\r\nzz\r\n${"x".repeat(1_000_000)}`),
          raw(`${post(key, `{"name":"before","categoryId":1}`)}${head}${chunks}\r\nzz\r\n`),
          raw(`${head}${chunks}\r\n1;${"x".repeat(20_000)}\r\n{\r\n`)
        ], { concurrency: "unbounded" })
        for (const [nth, first] of answers.entries()) {
          // Of who is told to go on, or has asked for something else before.
          const isFirst = first.status !== 100 && first.status !== 201
          const { headers, status, text } = isFirst
            ? first
            : parseAnswer(first.text.slice(first.text.indexOf("HTTP/1.1")))
          assert.deepStrictEqual([status, headers.get("x-request-id")], [nth === 8 ? 413 : 400, "mine"], text)
          assert.strictEqual(headers.get("x-ratelimit-limit"), "2000000000")
          assert.deepStrictEqual(JSON.parse(text).status, status)
        }
        assert.strictEqual(yield* address, before - 1)
      }))

    it.effect("waits for no body that says it is too large, and reads none of an unknown coding", () =>
      Effect.gen(function*() {
        const { newKey, raw } = yield* Service
        const head = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${json}Authorization: Bearer ${yield* newKey}\r\n`
        assertError(yield* raw(`${head}Content-Length: 65537\r\n\r\n`), 413, "payload_too_large")
        assertError(
          yield* raw(`${head}${end}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`),
          415,
          "unsupported_media_type"
        )
      }))

    it.effect("answers 429 to a key, a banned key and an address, and 422 to a name that was used", () =>
      Effect.gen(function*() {
        const { call, newKey } = yield* Service
        const [key, named] = [yield* newKey, yield* newKey]
        const add = (name: string) =>
          call("/v1/pets", {
            key: named,
            method: "POST",
            body: `{"name":"${name}","categoryId":1}`,
            headers: { "content-type": "application/json", "idempotency-key": "named" }
          })
        yield* add("a")
        assertError(yield* add("b"), 422, "idempotency_key_reused")
        for (let i = 0; i < 60; i++) yield* call("/v1/pets?limit=1", { key })
        assertError(yield* call("/v1/pets", { key }), 429, "rate_limit_exceeded")
        for (let i = 0; i < 58; i++) yield* call("/v1/pets", { key })
        assertError(yield* call("/v1/pets", { key }), 429, "api_key_banned")
        for (let i = 0; i < 60; i++) yield* call("/nowhere")
        assertError(yield* call("/nowhere"), 429, "rate_limit_exceeded")
        yield* TestClock.adjust("1 minute")
      }))

    it.effect("begins nothing behind an HTTP/1.0 request with Transfer-Encoding (RFC 9112 §6.1)", () =>
      Effect.gen(function*() {
        const { call, drip, newEndlessKey, raw } = yield* Service
        const key = yield* newEndlessKey
        const head = `POST /v1/pets HTTP/1.0\r\nConnection: keep-alive\r\n${json}Authorization: Bearer ${key}\r\n`
        const faulty = `${head}${chunks}\r\n0\r\n\r\n`
        const smuggled = post(key, `{"name":"smuggled","categoryId":1}`)
        // In the same segment, and half a second later.
        for (const answer of [yield* raw(faulty + smuggled), yield* drip(faulty, smuggled)]) {
          assertError(answer, 400, "invalid_request")
          assert.strictEqual(answer.headers.get("connection"), "close")
        }
        assert.notInclude((yield* call("/v1/pets?limit=100", { key })).text, "smuggled")
      }))

    it.effect("rejects HEAD by its head without a body", () =>
      Effect.gen(function*() {
        const { raw } = yield* Service
        const { status, text } = yield* raw("HEAD /v1/pets HTTP/1.1\r\nHost: a/b\r\n\r\n")
        assert.deepStrictEqual([status, text], [400, ""])
      }))

    it.effect("closes a connection that it refused, also if its peer does not", () =>
      Effect.gen(function*() {
        const { halfOpen } = yield* Service
        const answer = yield* halfOpen("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assertError(answer, 405, "method_not_allowed")
      }))

    it.effect("keeps the connection of who was refused, where all of the request is there", () =>
      Effect.gen(function*() {
        const { newKey, raw } = yield* Service
        const body = `{"name":1,"categoryId":1}`
        const add = (header: string) =>
          `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\n${header}Content-Length: ${body.length}\r\n\r\n${body}`
        const key = `Authorization: Bearer ${yield* newKey}\r\n`
        const { status, text } = yield* raw(
          [add(""), add(json), add(key), add(key + json), add(`${json}Connection: close\r\n`)].join("")
        )
        const statuses = [status, ...text.matchAll(/HTTP\/1\.1 (\d+)/g).map(([, status]) => Number(status))]
        assert.deepStrictEqual(statuses, [401, 401, 415, 400, 401])
      }))

    it.effect("takes the caller's X-Request-Id if it is short and plain, and makes one otherwise", () =>
      Effect.gen(function*() {
        const { call, newEndlessKey } = yield* Service
        const key = yield* newEndlessKey
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
        // Nothing in an id tells how many requests came between two: no part of it counts, or stays the same.
        const parts = ids.map((id) => (id ?? "").split("-"))
        for (const part of [0, 1, 4]) assert.strictEqual(new Set(parts.map((id) => id[part])).size, 50)
        const last = parts.map((id) => parseInt(id[4] ?? "", 16))
        assert.isAbove(last.filter((id, nth) => nth > 0 && id < (last[nth - 1] ?? 0)).length, 5)
      }))

    it.effect("tells of the deprecation of getPet on every answer of its path", () =>
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
          const { headers, ...answer } = yield* call(to, options)
          assert.strictEqual(answer.status, status)
          assert.strictEqual(headers.get("deprecation"), "@1795219200")
          assert.strictEqual(headers.get("sunset"), "Thu, 05 Dec 2030 00:00:00 GMT")
          assert.strictEqual(headers.get("link"), `</v1/pets>; rel="successor-version"`)
        }
        assert.isNull((yield* call("/v1/pets", { key })).headers.get("deprecation"))
      }))

    it.effect("says nothing of other origins unless some are configured", () =>
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
    it.effect("charges nobody for the preflights of their pages", () =>
      Effect.gen(function*() {
        const { call } = yield* Service
        const ask = (origin: string) =>
          call("/v1/pets", { method: "OPTIONS", headers: { origin, "access-control-request-method": "GET" } })
        for (let i = 0; i < 100; i++) assert.strictEqual((yield* ask("https://shop.example")).status, 204)
        for (let i = 0; i < 60; i++) assert.strictEqual((yield* ask("https://none.example")).status, 204)
        const refused = yield* ask("https://none.example")
        assertError(refused, 429, "rate_limit_exceeded")
        assert.strictEqual(refused.headers.get("connection"), "close")
        assert.strictEqual((yield* ask("https://shop.example")).status, 204)
        yield* TestClock.adjust("1 minute")
      }))

    it.effect("lets pages of the configured origins call, and no others", () =>
      Effect.gen(function*() {
        const { call, newKey, raw } = yield* Service
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
        const answer = yield* call("/v1/pets", { key, headers: { origin: "https://other.example" } })
        assert.strictEqual(answer.headers.get("access-control-allow-origin"), "https://other.example")
        assert.include(answer.headers.get("access-control-expose-headers"), "Retry-After")
        const stranger = yield* call("/v1/pets", { key, headers: { origin: "https://evil.example" } })
        assert.isNull(stranger.headers.get("access-control-allow-origin"))
        assert.strictEqual(stranger.headers.get("vary"), "Origin")
        assert.strictEqual((yield* raw("garbage\r\n\r\n")).headers.get("vary"), "Origin")
      }))
  })
})

describe("A service that is about to end", () => {
  const ending = Layer.fresh(service(memory, {}, Layer.succeed(GracefulShutdown, { begun: true })))
  it.effect("closes each connection with its answer, whichever way it took", () =>
    Effect.gen(function*() {
      const { newKey, raw } = yield* Service
      const authorization = `Authorization: Bearer ${yield* newKey}\r\n`
      for (const rest of [authorization, "", "Bad Header: 1\r\n"]) {
        const answer = yield* raw(`GET /v1/pets HTTP/1.1\r\nHost: localhost\r\n${rest}\r\n`)
        assert.strictEqual(answer.headers.get("connection"), "close")
      }
    }).pipe(Effect.provide(ending)))
})

describe("CORS_ORIGINS", () => {
  it.effect("is refused where it names no origin", () =>
    Effect.gen(function*() {
      for (const CORS_ORIGINS of ["shop", "https://shop.example/", "https://a.example,ftp"]) {
        const failed = yield* Effect.flip(Layer.build(Layer.fresh(service(memory, { CORS_ORIGINS }))))
        assert.include(String(failed), "CORS_ORIGINS")
      }
    }))
})

describe("getPet", () => {
  it.effect("answers 410 from 5 December 2030 on, whatever is asked of it", () =>
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

describe("A connection that pipelines more than 500 requests", () => {
  it.live("gets the responses that are ready, whole and in order, before it is closed", () =>
    Effect.gen(function*() {
      const { newEndlessKey, raw } = yield* Service
      const get = `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${yield* newEndlessKey}\r\n\r\n`
      const { status, text } = yield* raw(get.repeat(2_000))
      assert.strictEqual(status, 200)
      const responses = text.split("HTTP/1.1 200 OK").length
      assert.isAtLeast(responses, 10)
      assert.isBelow(responses, 2_000)
      assert.isTrue(text.endsWith("[]"))
    }).pipe(Effect.provide(Layer.fresh(service(memory)))), 20_000)
})

describe("Requests whose callers go in the middle of a body", () => {
  // Within Effect's server, for the sake of its spans.
  const tracer = Layer.succeed(Tracer.Tracer, Tracer.make({ span: (options) => new Tracer.NativeSpan(options) }))

  for (
    const [way, services] of [["", service(memory)], [
      " where they are traced",
      Layer.provide(service(memory), tracer)
    ]] as const
  ) {
    it.live(`end${way}`, () =>
      Effect.gen(function*() {
        const { held, newKey } = yield* Service
        const { all, handled } = yield* AdmissionControl
        const half =
          `POST /v1/pets HTTP/1.1\r\n${ok}${json}Content-Length: 100\r\nAuthorization: Bearer ${yield* newKey}\r\n\r\n{`
        const holding = yield* Effect.forkChild(held(half))
        while (handled() === 0) yield* Effect.sleep("10 millis")
        assert.strictEqual(all.inFlight, 0)
        yield* Fiber.interrupt(holding)
        while (handled() > 0) yield* Effect.sleep("10 millis")
      }).pipe(Effect.provide(Layer.fresh(services))))
  }
})

describe("A burst of 500 requests on one connection", () => {
  /** Whose additions are there later than what is asked for after them could be. */
  const slow = Layer.effect(
    PetRepository,
    Effect.map(PetRepository, (pets) => ({
      ...pets,
      create: (pet) => Effect.andThen(Effect.sleep("1 millis"), pets.create(pet))
    }))
  ).pipe(Layer.provideMerge(memory))

  it.live("is answered whole and in its order, what comes after an addition when that is done (RFC 9112 §9.3.2)", () =>
    Effect.gen(function*() {
      const { newEndlessKey, raw } = yield* Service
      const head = ` HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${yield* newEndlessKey}\r\n`
      const burst = Array.from({ length: 250 }, (_, nth) => {
        const body = `{"name":"${nth}","categoryId":1}`
        return `POST /v1/pets${head}${json}Content-Length: ${body.length}\r\n\r\n${body}GET /v1/pets/${
          nth + 1
        }${head}\r\n`
      })
      const { text } = yield* raw(`${burst.join("")}GET /v1/pets?limit=100${head}Connection: close\r\n\r\n`)
      const answers = text.split(/(?=HTTP\/1\.1 )/)
      assert.lengthOf(answers, 501)
      for (const [nth] of burst.entries()) {
        assert.match(answers[2 * nth] ?? "", new RegExp(`"name":"${nth}"`))
        assert.match(answers[2 * nth + 1] ?? "", new RegExp(`200 OK[^]*"name":"${nth}"`))
      }
      assert.match(answers[500] ?? "", /200 OK/)
    }).pipe(Effect.provide(Layer.fresh(service(slow)))))
})
