import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger, Ref } from "effect"
import { OpenApi } from "effect/http-api"
import { TestClock } from "effect/testing"
import { setImmediate } from "node:timers/promises"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { withChecksum } from "../../src/api/Secrets.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import { GracefulShutdown } from "../../src/http/RequestLifecycle.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertCommonHeaders, assertError } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"
import { message, statusesOf } from "../support/Sockets.ts"

const json = "Content-Type: application/json"
const chunked = "Transfer-Encoding: chunked"
const keepAlive = "Connection: keep-alive"

/** Returns a request of HTTP/1.1, after which the service closes the connection. */
const request = (line: string, fields = ["KEY"], body = "") =>
  message(`${line} HTTP/1.1`, ["Host: localhost", "Connection: close", ...fields], body)

const create = (body: string, fields = ["KEY", json]) =>
  message("POST /v1/pets HTTP/1.1", ["Host: localhost", `Content-Length: ${body.length}`, ...fields], body)

const post = (fields: ReadonlyArray<string>, body: string) => create(body, ["Connection: close", "KEY", ...fields])

const pet = `{"name":"a","categoryId":12}`
const petInChunks = `${pet.length.toString(16)}\r\n${pet}\r\n0\r\n\r\n`
const long = "x".repeat(17_000)
const { paths } = OpenApi.fromApi(PetstoreApi)
const allow = (...items: ReadonlyArray<object | undefined>) => {
  const methods = items.flatMap((item = {}) => Object.keys(item)).join().toUpperCase().replace("GET", "GET, HEAD")
  return { allow: [...new Set(`${methods},OPTIONS`.split(/, ?/))].join(", ") }
}
const [ofServer, ofPets, ofPet] = [allow(...Object.values(paths)), allow(paths["/pets"]), allow(paths["/pets/{petId}"])]
const link = `</v1/pets>; rel="successor-version", </docs>; rel="deprecation"; type="text/html", ` +
  `</docs>; rel="sunset"; type="text/html"`
const deprecated = { deprecation: "@1795219200", sunset: "Thu, 05 Dec 2030 00:00:00 GMT", link }
// A response that belongs to a path, and to no operation, is deprecated if all operations of the path are.
const { length: operationsOfPet } = Object.keys(paths["/pets/{petId}"] ?? {})
const ofDeprecatedPet = operationsOfPet === 1 ? { ...ofPet, ...deprecated } : ofPet

const [shop, other] = ["https://shop.example", "https://other.example"]
const fromShop = `Origin: ${shop}`
const listFrom = (origin: string) => request("GET /v1/pets", ["KEY", `Origin: ${origin}`])
const preflight = [fromShop, "Access-Control-Request-Method: POST"]
const allowed = (origin: string | null) => ({ "vary": "Origin", "access-control-allow-origin": origin })
const acceptedNames = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, b3, traceparent, tracestate"
const accepted = { "access-control-allow-methods": ofPets.allow, "access-control-allow-headers": acceptedNames }
const exposed =
  "Accept-Encoding, Allow, Deprecation, Idempotent-Replayed, Link, Location, RateLimit, RateLimit-Policy, " +
  "Retry-After, Sunset, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, " +
  "X-RateLimit-Scope, X-Request-Id"
const chargedToKey = { "x-ratelimit-scope": "key", "x-ratelimit-remaining": "59" }
const listAs = (credential: string) => request("GET /v1/pets", [`Authorization: ${credential}`])
const noCredential = { ...deprecated, "www-authenticate": `Bearer realm="petstore"` }
const invalidToken = { "www-authenticate": `Bearer realm="petstore", error="invalid_token"` }
const unknownKey = withChecksum("0".repeat(32))
const identity = { "accept-encoding": "identity" }
const tooLarge = "The URL and the headers together are larger than 16 KiB"
const bothLengths = "(both Content-Length and Transfer-Encoding)."
const coding = "expected a Transfer-Encoding that ends with chunked"

type Row = readonly [name: string, bytes: string, headers?: Readonly<Record<string, string | null>>, text?: string]

/** Requests to a store whose reads of one pet fail, by the status and the code of the response, with parts of it. */
const requests: Readonly<Record<string, ReadonlyArray<Row>>> = {
  "200": [
    ["a success in HTTP/1.0", message("GET /v1/pets HTTP/1.0", ["KEY"])],
    ["a target in absolute form", request("GET http://localhost/v1/pets")],
    ["HEAD", request("HEAD /v1/pets"), { "content-length": "2", ...chargedToKey }],
    ["parameters that the service does not know", request("GET /v1/pets?page=2&status[]=none&limits=0")],
    ["a semicolon in a query", request("GET /v1/pets?page=2;3")],
    ["an ignored upgrade", request("GET /v1/pets", ["Connection: Upgrade", "Upgrade: websocket", "KEY"])],
    ["the OpenAPI document", request("GET /openapi.json", [])],
    ["a page of an allowed origin", listFrom(other), { ...allowed(other), "access-control-expose-headers": exposed }],
    ["a page of another origin", listFrom("https://a.example"), allowed(null)]
  ],
  "201": [
    ["a create of an allowed origin", post([json, fromShop], pet), { "access-control-expose-headers": exposed }],
    ["an upgrade with a body", post([json, "Connection: Upgrade", "Upgrade: x"], pet)],
    ["a body of 16 KiB", post([json], pet.padEnd(16_384))],
    ["100 fields", post([json, ...Array.from({ length: 95 }, () => "X: 1")], pet)],
    ["chunks", request("POST /v1/pets", ["KEY", json, "Transfer-Encoding: Chunked"], petInChunks)],
    ["a body without a coding", post([json, "Content-Encoding: Identity"], pet)],
    ["a type in capitals", post(["Content-Type: Application/JSON"], pet)],
    ["a type with empty parameters", post([`Content-Type: application/json ; ;charset="UTF-8" ;`], pet)],
    ["a type with unknown parameters", post([`${json}; charset=utf8; profile=x`], pet)]
  ],
  "204": [
    ["OPTIONS", request("OPTIONS /v1/pets", []), ofPets],
    ["OPTIONS of getPet", request("OPTIONS /v1/pets/1", []), ofDeprecatedPet],
    ["OPTIONS of the server", request("OPTIONS *", []), ofServer],
    ["a preflight of an allowed origin", request("OPTIONS /v1/pets", preflight), { ...allowed(shop), ...accepted }]
  ],
  "400 invalid_request": [
    ["a very long type", post([`${json}${" ; ".repeat(5_000)}x`], "{}")],
    ["a path that does not decode", request("GET /v1/pets/x"), deprecated],
    ["a byte order mark", post([json], `\xef\xbb\xbf${pet}`), {}, "body: expected no byte order mark."],
    ["a semicolon after the path", request("GET /v1/pets;limit=1")],
    ["a malformed header", request("GET /v1/pets", ["Bad Header: 1"]), {}, "(method, URL encoding or a header)"],
    ["two keys", request("GET /v1/pets", ["KEY", "KEY"]), {}, "expected one Authorization header."],
    ["a long cursor", request(`GET /v1/pets?cursor=${"A".repeat(3_000)}`), {}, "expected a cursor from a Link header."],
    ["a fragment", request("GET /v1/pets/1#a"), {}, "expected no # in the URL"],
    ["a fragment of an absolute URL", request("GET http://localhost/v1/pets#a"), {}, "expected no # in the URL"],
    ["a fragment after a query", request("GET /v1/pets?limit=1#a"), {}, "expected no # in the URL"],
    ["another case", request("GET /v1/pets?Limit=1"), {}, `query.Limit: unknown parameter; did you mean "limit"?`],
    ["two types", post([json, "Content-Type: text/plain"], pet), {}, "expected one Content-Type header."],
    ["lines without CR", "GET /v1/pets HTTP/1.1\nHost: a\n\n", {}, "(each line must end with CR and LF)."],
    ["a header without CR", message("GET / HTTP/1.1", ["Host: a\nX: 1"]), {}, "(each line must end with CR and LF)."],
    ["two lengths", post([json, "Content-Length: 2"], "{}"), {}, "(more than one Content-Length)."],
    ["a folded header", request("GET /v1/pets", ["X: 1\r\n 2"]), {}, "(a header must not continue on the next line)."],
    ["a folded Host", message("GET / HTTP/1.1", [" Host: a"]), {}, "(a header must not continue on the next line)."],
    ["no Host", message("GET /v1/pets HTTP/1.1", []), {}, "expected one valid Host header."],
    ["getPet without Host", message("GET /v1/pets/1 HTTP/1.1", ["KEY"]), deprecated],
    ["a path of getPet that is not decodable", request("GET /v1/pets/%"), deprecated],
    ["two Hosts", request("GET /v1/pets", ["Host: a"])],
    ["an invalid Host", message("GET /v1/pets HTTP/1.1", ["Host: a/b"])],
    ["bytes that are not HTTP", "\x16\x03\x01\x02\x00\r\n\r\n", { vary: "Origin" }],
    ["an invalid version", message("GET /v1/pets HTTP/1.x", ["Host: a"])],
    ["chunked HTTP/1.0", message("POST /v1/pets HTTP/1.0", [keepAlive, json, chunked, "KEY"], petInChunks), {}, coding],
    ["a coding that is not chunked", request("GET /v1/pets", ["Transfer-Encoding: gzip", "KEY"])],
    ["a body in a coding that is not chunked", request("POST /v1/pets", ["Transfer-Encoding: gzip", json, "KEY"], "x")],
    ["Content-Length with chunks", post([chunked], "0\r\n\r\n"), {}, bothLengths],
    ["chunks with Content-Length", request("POST /", [chunked, "Content-Length: 2"], "0\r\n\r\n"), {}, bothLengths]
  ],
  "401 missing_api_key": [
    ["no key of an allowed origin", request("GET /v1/pets", [fromShop]), { "access-control-expose-headers": exposed }],
    ["no key to getPet", request("GET /v1/pets/1", []), noCredential, "Send an API key as a bearer token: "],
    ["a key alone", listAs("psk_x"), {}, "Found Authorization without Bearer. Send"],
    ["an empty variable", listAs("Bearer "), {}, "Found Authorization: Bearer without"],
    ["another header", request("GET /v1/pets", ["X-API-Key: psk_x"]), {}, "Found X-API-Key. Send an API key as a"],
    ...["api_key", "apikey", "key", "access_token", "a=1&token"].map((name): Row => [
      `a key in the URL, as ${name}`,
      request(`GET /v1/pets?${name}=psk_x`, []),
      {},
      "Found a key in the URL, which logs can show."
    ])
  ],
  "401 invalid_api_key": [
    ["half a key", listAs("Bearer psk_x"), invalidToken, "The API key is incomplete or mistyped."],
    ["a mistyped key", listAs(`Bearer ${unknownKey.replace("_0", "_1")}`), invalidToken, "incomplete or mistyped."],
    [
      "an unknown key",
      listAs(`Bearer ${unknownKey}`),
      invalidToken,
      "is unknown, disabled, expired, revoked or rotated"
    ],
    ["an admin token", listAs("Bearer adm_x"), invalidToken, "An admin token works only on"],
    // The last has curly marks, in UTF-8.
    ...[`"psk_x`, "'psk_x", `psk_x"`, "psk_x'", "\xe2\x80\x9cpsk_x\xe2\x80\x9d"].map((
      key
    ): Row => [
      `the quoted key ${key}`,
      listAs(`Bearer ${key}`),
      invalidToken,
      "The API key is in quotation marks. Send it without"
    ]),
    ["Bearer twice", listAs("Bearer Bearer psk_x"), invalidToken, "The Authorization header has Bearer twice."],
    ...["$TOKEN", "${TOKEN}", "$env:TOKEN", "%TOKEN%", "{{TOKEN}}"].map((
      name
    ): Row => [name, listAs(`Bearer ${name}`), invalidToken, "has the name of the variable TOKEN instead"])
  ],
  "404 not_found": [
    ["a slash at the end", request("GET /v1/pets/A/"), {}, "No such path. Use /v1/pets/A."],
    ["a slash at the end of the list", request("GET /v1/pets/"), {}, "No such path. Use /v1/pets."],
    ["a slash at the end before a query", request("GET /v1/pets/?limit=1"), {}, "No such path. Use /v1/pets."],
    ...["/V1/Pets", "/pets", "/v1", "/v1/", "/v1/pet", "/v2/pets"].map((
      path
    ): Row => [
      `${path}, a near miss`,
      request(`GET ${path}`),
      {},
      "No such path. Did you mean /v1/pets? Paths are case-"
    ]),
    ["a near miss with an id", request("GET /v1/pet/A"), {}, "Did you mean /v1/pets/A?"],
    ...["/healthz", "/readyz", "/metrics", "/admin", "/admin/keys"].map((
      path
    ): Row => [
      `${path} of the other port`,
      request(`GET ${path}`, []),
      {},
      " is on the management port (MANAGEMENT_PORT)."
    ]),
    ["GET of the server", request("GET *", [])],
    ...["//v1/pets", "/v1/pets/1/x", "/v1/%zz", "/v1/store/orders"].flatMap((path): Array<Row> => [
      [`${path} with a key`, request(`GET ${path}`)],
      [`${path} without a key`, request(`GET ${path}`, [])]
    ]),
    ["OPTIONS of an unknown path", request("OPTIONS /nowhere", [])]
  ],
  "405 method_not_allowed": [
    ["TRACE", request("TRACE /v1/pets", []), ofPets],
    ["CONNECT", request("CONNECT localhost:80", []), ofServer],
    ["an unknown method", request("BREW /v1/pets", []), ofServer, `BREW is not allowed here. Use one of`],
    ["DELETE", request("DELETE /v1/pets/1"), ofPet, `DELETE is not allowed here. Use one of ${ofPet.allow}.`],
    ["PUT without a key", request("PUT /v1/pets", []), ofPets],
    ["PUT of a document", request("PUT /openapi.json", []), { allow: "GET, HEAD, OPTIONS" }],
    ["an unsupported method of an encoded path", request("PUT /%761/pets/1", []), ofDeprecatedPet]
  ],
  "413 payload_too_large": [
    ["a large body of another type", request("POST /v1/pets", ["KEY", "Content-Type: a/b", "Content-Length: 16385"])],
    ["a body over 16 KiB", post([json], pet.padEnd(16_385))],
    ["too large a chunk", request("POST /v1/pets", ["KEY", json, chunked], `4001\r\n${"x".repeat(16_385)}\r\n`)]
  ],
  "415 unsupported_media_type": [
    ["a body without a type", post([], "{}"), { "accept-encoding": null }],
    ["a body of another type, which is not JSON", post(["Content-Type: text/json"], "{")],
    ["a malformed body of another type", request("POST /v1/pets", ["KEY", "Content-Type: a/b", chunked], "zz\r\n")],
    ["a body of another charset", post([`${json}; charset=us-ascii`], pet), {}, "does not accept charset=us-ascii."],
    ["a compressed body", post([json, "Content-Encoding: gzip"], "{}"), identity, "accept Content-Encoding: gzip."],
    ["compressed chunks", request("POST /v1/pets", ["KEY", json, "Transfer-Encoding: gzip, chunked"], petInChunks)]
  ],
  "417 expectation_failed": [
    ["an expectation", request("POST /v1/pets", ["KEY", "Expect: tea", "Content-Length: 16385"])],
    ["HEAD with an expectation", request("HEAD /v1/pets/1", ["KEY", "Expect: tea"]), deprecated]
  ],
  "431 request_header_fields_too_large": [
    ["too large a head of an allowed origin", request("GET /a", [fromShop, `X: ${long}`]), allowed(shop), tooLarge],
    ["a URL that is too long", request(`GET /${long}`)],
    ["too many fields", request("GET /v1/pets", Array.from({ length: 99 }, () => "X: 1"))]
  ],
  "500 internal_error": [["a defect", request("GET /v1/pets/1"), { ...deprecated, ...chargedToKey }]],
  "505 http_version_not_supported": [
    ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["HTTP/1.2", message("GET /v1/pets HTTP/1.2", ["Host: a", "KEY"])],
    ["a request without a version", "GET /v1/pets\r\n\r\n"]
  ]
}

const failingFind = memoryWith(() => ({ find: () => Effect.die(new Error("secret")) }))
const title = "A response of the API port has the common headers and, on failure, the Error body"

layer(service(failingFind, { CORS_ORIGINS: `${shop}, ${other}` }))(title, (it) => {
  for (const [outcome, rows] of Object.entries(requests)) {
    it.effect.each(rows)(`${outcome} for %s`, ([, bytes, headers = {}, text = ""]) =>
      Effect.gen(function*() {
        const { newKey, send } = yield* Service
        const response = yield* send(bytes, { key: newKey })
        const [status, code] = outcome.split(" ")
        assert.strictEqual(response.status, Number(status), response.text)
        if (bytes.startsWith("HEAD") || status === "204") assert.strictEqual(response.text, "")
        else if (code !== undefined) assertError(response, Number(status), code, text)
        assertCommonHeaders(response)
        assert.notInclude(response.text, "secret")
        for (const [name, value] of Object.entries(headers)) assert.strictEqual(response.headers.get(name), value)
        // An address may send 60 requests a minute.
        yield* TestClock.adjust("2 seconds")
      }))
  }
})

describe("ApiServer", () => {
  const slowStore = memoryWith((pets) => ({
    create: (pet) => Effect.andThen(Effect.promise(() => setImmediate()), pets.create(pet))
  }))

  layer(service(slowStore))((it) => {
    it.effect("responds to pipelined requests in order, whatever they get, and to a client that half-closes (RFC 9112)", () =>
      Effect.gen(function*() {
        const { send } = yield* Service
        const invalid = (fields: Array<string>) => create(`{"name":1,"categoryId":1}`, fields) + post([json], pet)
        const pipelines = [
          [invalid([]), 401, 201],
          [invalid([json]), 401, 201],
          [invalid(["KEY"]), 415, 201],
          [invalid(["KEY", json]), 400, 201],
          [create(pet) + "garbage\r\n\r\n", 201, 400],
          [create(pet) + request("BREW /"), 201, 405],
          [create(pet) + request("GET /v1/pets", ["KEY", "Expect: tea"]), 201, 417],
          [create(pet) + request("CONNECT localhost:1"), 201, 405],
          [create(pet) + request("GET /v1/pets", []), 201, 401],
          [create(pet).repeat(2) + "garbage\r\n\r\n", 201, 201, 400]
        ] as const
        for (const [bytes, ...codes] of pipelines) assert.deepStrictEqual(statusesOf(yield* send(bytes)), [...codes])
        assert.deepStrictEqual(statusesOf(yield* send(create(pet).repeat(2), { halfCloses: true })), [201, 201])
        // The list has the pet of the create before it, and not of the one after it.
        const before = yield* send(create(`{"name":"first","categoryId":1}`) + request("GET /v1/pets?limit=100"))
        assert.include(before.text.split("HTTP/1.1 200")[1], `"first"`)
        const list = message("GET /v1/pets?limit=100 HTTP/1.1", ["Host: localhost", "KEY"])
        const after = yield* send(list + post([json], `{"name":"second","categoryId":1}`))
        assert.deepStrictEqual(statusesOf(after), [200, 201])
        assert.notInclude(after.text.split("HTTP/1.1 201")[0], "second")
      }))

    it.effect("responds to an invalid body with an error of its request, charged to the key and not to the address", () =>
      Effect.gen(function*() {
        const { call, send } = yield* Service
        const head = (field: string) =>
          message("POST /v1/pets HTTP/1.1", ["Host: localhost", json, "X-Request-Id: mine", "KEY", field])
        const address = Effect.map(call("/nowhere"), ({ headers }) => Number(headers.get("x-ratelimit-remaining")))
        const before = yield* address
        const responses = yield* Effect.all([
          send(`${head("Content-Length: 30")}{`, { halfCloses: true }),
          send(`${head(chunked)}5\r\n{`, { halfCloses: true }),
          send(head(chunked), { drip: "zz\r\n" }),
          send(`${head(chunked)}zz\r\n${"x".repeat(1_000_000)}`),
          send(`${head(chunked)}1;${"x".repeat(20_000)}\r\n{\r\n`)
        ], { concurrency: "unbounded" })
        assert.deepStrictEqual(responses.map(({ status }) => status), [400, 400, 400, 400, 413])
        for (const { headers, status, text } of responses) {
          assert.include(Object.fromEntries(headers), { "x-request-id": "mine", "x-ratelimit-limit": "2000000000" })
          assert.strictEqual(JSON.parse(text).status, status)
        }
        assert.strictEqual(yield* address, before - 1)
      }))

    it.effect("serves no request after an HTTP/1.0 request with Transfer-Encoding (RFC 9112 §6.1)", () =>
      Effect.gen(function*() {
        const { call, send, unlimitedKey } = yield* Service
        const key = yield* unlimitedKey
        const faulty = message("POST /v1/pets HTTP/1.0", [keepAlive, json, "KEY", chunked], "0\r\n\r\n")
        const smuggled = create(`{"name":"smuggled","categoryId":1}`).replace("KEY", `Authorization: Bearer ${key}`)
        // The smuggled request arrives in the same segment, and later.
        for (const response of [yield* send(faulty + smuggled), yield* send(faulty, { drip: smuggled })]) {
          assert.deepStrictEqual(statusesOf(response), [400])
          assert.strictEqual(response.headers.get("connection"), "close")
        }
        assert.notInclude((yield* call("/v1/pets?limit=100", { key })).text, "smuggled")
      }))

    it.effect("uses the client's X-Request-Id if it is valid and contains no secret, and generates one otherwise", () =>
      Effect.gen(function*() {
        const { call } = yield* Service
        const name = "x-request-id"
        const idOf = (id: string) =>
          Effect.map(call("/v1/pets", { headers: { [name]: id } }), ({ headers }) => headers.get(name))
        for (const id of ["a", "x".repeat(64), "a.b:c_d-1"]) assert.strictEqual(yield* idOf(id), id)
        const secrets = [`psk_${"a".repeat(38)}`, `id:ADM_${"b".repeat(32)}`]
        const generated = yield* Effect.forEach(["", "x".repeat(65), "a b", `"a"`, "a,b", "\u00e9", ...secrets], idOf)
        for (const id of generated) assert.match(String(id), /^[0-9a-f-]{36}$/)
        assert.strictEqual(new Set(generated).size, generated.length)
      }))

    it.effect("sends no CORS headers unless origins are configured", () =>
      Effect.gen(function*() {
        for (const method of ["GET", "OPTIONS"]) {
          const { headers } = yield* (yield* Service).call("/v1/pets", { method, headers: { origin: shop } })
          for (const name of headers.keys()) assert.notMatch(name, /^(access-control-|vary)/)
        }
      }))
  })

  it.effect("is localhost in the first key's command, which lists pets, and in the log line about /docs", () =>
    Effect.gen(function*() {
      const { port } = yield* Service
      assert.strictEqual(yield* ApiServer.exampleUrl, `http://localhost:${port}/v1/pets`)
      const lines: Array<string> = []
      const logger = Logger.make(({ message }) => void lines.push(String(message)))
      yield* Effect.provide(ApiServer.logStart, Logger.layer([logger]))
      const documentation = `http://localhost:${port}/docs`
      assert.deepStrictEqual(lines, [`Listening on http://0.0.0.0:${port}, with documentation at ${documentation}`])
    }).pipe(Effect.provide(service(memory, { HOST: "0.0.0.0" }))))

  it.effect("allows every origin with CORS_ORIGINS=*", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      for (const origin of [shop, "http://localhost:3000"]) {
        const { headers } = yield* call("/v1/pets", { headers: { origin } })
        assert.strictEqual(headers.get("access-control-allow-origin"), origin)
      }
    }).pipe(Effect.provide(service(memory, { CORS_ORIGINS: "*" }))))

  it.effect("allows an origin only if it equals one of CORS_ORIGINS", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const allowed = (origin: string) =>
        Effect.map(
          call("/v1/pets", { headers: { origin } }),
          ({ headers }) => headers.get("access-control-allow-origin")
        )
      assert.strictEqual(yield* allowed(shop), shop)
      for (const origin of [`${shop}.evil.test`, `${shop}:8443`, shop.toUpperCase(), "null"]) {
        assert.isNull(yield* allowed(origin), origin)
      }
    }).pipe(Effect.provide(service(memory, { CORS_ORIGINS: shop }))))

  it.effect("charges no preflight of an allowed origin, and closes the connection after a 429", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const send = (origin: string) =>
        call("/v1/pets", { method: "OPTIONS", headers: { origin, "access-control-request-method": "POST" } })
      yield* Effect.replicateEffect(send(other), 60)
      const rejected = yield* send(other)
      assertError(rejected, 429, "rate_limit_exceeded")
      assert.strictEqual(rejected.headers.get("connection"), "close")
      assert.strictEqual((yield* send(shop)).status, 204)
      // Without `Access-Control-Request-Method`, it is no preflight.
      assert.strictEqual((yield* call("/v1/pets", { method: "OPTIONS", headers: { origin: shop } })).status, 429)
    }).pipe(Effect.provide(service(memory, { CORS_ORIGINS: shop }))))
})

const draining = Layer.effect(GracefulShutdown, Ref.make(true))

it.effect("A request that the end of a shutdown interrupts gets 503, like any other in an outage", () =>
  Effect.gen(function*() {
    const { newKey, send } = yield* Service
    const response = yield* send(request("GET /v1/pets/1"), { key: newKey })
    assertError(response, 503, "service_unavailable", "The service is shutting down.")
    assertCommonHeaders(response)
    assert.strictEqual(response.headers.get("retry-after"), "1")
  }).pipe(Effect.provide(service(memoryWith(() => ({ find: () => Effect.interrupt })), {}, { draining }))))

it.effect("A draining service closes each connection after its response", () =>
  Effect.gen(function*() {
    const { send } = yield* Service
    for (const field of ["KEY", "X: 1", "Bad Header: 1"]) {
      const { headers } = yield* send(message("GET /v1/pets HTTP/1.1", ["Host: localhost", field]))
      assert.strictEqual(headers.get("connection"), "close", field)
    }
  }).pipe(Effect.provide(service(memory, {}, { draining }))))

it.effect("A draining service closes a connection after the 500 of a defect in the completion of a response", () => {
  const die = () => Effect.die("defect")
  const limiter = { charge: die, peek: die, unban: die, counting: Effect.succeed("own" as const) }
  const store = Layer.merge(memory, Layer.succeed(RateLimiter, limiter))
  return Effect.gen(function*() {
    const { send } = yield* Service
    const response = yield* send(message("GET /none HTTP/1.1", ["Host: localhost"]))
    assert.deepStrictEqual([response.status, response.headers.get("connection")], [500, "close"])
  }).pipe(Effect.provide(service(store, {}, { draining })))
})

it.effect("getPet announces its deprecation in a 429 too", () =>
  Effect.gen(function*() {
    const { call } = yield* Service
    yield* Effect.replicateEffect(call("/v1/pets"), 60)
    const rejected = yield* call("/v1/pets/1")
    assertError(rejected, 429, "rate_limit_exceeded")
    assert.include(Object.fromEntries(rejected.headers), deprecated)
  }).pipe(Effect.provide(service(memory))))

const lastMoment = Layer.effectDiscard(TestClock.setTime(Date.parse("2030-12-04T23:59:59.999Z")))

it.effect("getPet announces its deprecation, and returns 410 to authenticated requests from 5 December 2030 on", () =>
  Effect.gen(function*() {
    const { call, newKey, send } = yield* Service
    const key = yield* newKey
    const get = (path: string) => call(path, { key })
    yield* send(post([json], pet))
    const [found, missing] = [yield* get("/v1/pets/1"), yield* get("/v1/pets/2")]
    assert.strictEqual(found.status, 200)
    assertError(missing, 404, "not_found")
    for (const { headers } of [found, missing]) assert.include(Object.fromEntries(headers), deprecated)
    yield* TestClock.adjust(1)
    for (const path of ["/v1/pets/1", "/v1/pets/x"]) {
      const gone = yield* get(path)
      assertError(gone, 410, "gone")
      assert.include(gone.text, "Use GET /v1/pets.")
      assert.include(Object.fromEntries(gone.headers), deprecated)
    }
    assertError(yield* call("/v1/pets/1"), 401, "missing_api_key")
    const unexpected = yield* send(request("GET /v1/pets/1", ["KEY", "Expect: tea"]), { key: Effect.succeed(key) })
    assertError(unexpected, 417, "expectation_failed")
    const listed = yield* get("/v1/pets")
    assert.deepStrictEqual([listed.status, listed.headers.get("deprecation")], [200, null])
  }).pipe(Effect.provide(Layer.provide(service(memory), lastMoment))))
