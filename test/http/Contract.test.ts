/** Tests SPEC §4, §5 and §7 over a socket, byte by byte, on every store. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { type ReceivedResponse, Service, service, stores } from "../support/Harness.ts"
import * as PgBouncer from "../support/PgBouncer.ts"

/** Checks the headers that every response of the API port has (SPEC §8). */
const assertLimitHeaders = ({ headers }: ReceivedResponse): void => {
  assert.match(headers.get("x-ratelimit-limit") ?? "", /^\d+$/)
  assert.match(headers.get("x-ratelimit-remaining") ?? "", /^\d+$/)
  assert.match(headers.get("x-ratelimit-reset") ?? "", /^\d+$/)
  assert.strictEqual(headers.get("ratelimit-policy"), `"minute";q=60;w=60, "day";q=1000;w=86400`)
  assert.match(headers.get("ratelimit") ?? "", /^"minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/)
  assert.match(headers.get("x-ratelimit-scope") ?? "", /^(?:key|address)$/)
  assert.match(headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/)
}

const assertSuccess = (response: ReceivedResponse, status: number, text: string): void => {
  assert.strictEqual(response.text, text)
  assert.strictEqual(response.status, status)
  assert.strictEqual(response.headers.get("content-type"), "application/json")
  assertLimitHeaders(response)
}

const assertError = (response: ReceivedResponse, status: number, code: string): void => {
  assert.strictEqual(response.status, status, response.text)
  const body = JSON.parse(response.text)
  assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
  assert.strictEqual(body.code, code)
  assert.strictEqual(body.status, status)
  assert.isAbove(body.message.length, 0)
  assert.strictEqual(response.headers.get("content-type"), "application/json")
  assert.strictEqual(response.headers.get("www-authenticate"), status === 401 ? "Bearer" : null)
  assertLimitHeaders(response)
}

const post = (key: string, body: string, contentType = "application/json") =>
  Effect.flatMap(
    Service,
    ({ call }) => call("/v1/pets", { key, method: "POST", body, headers: { "content-type": contentType } })
  )

const invalidBodies = [
  ["", "valid JSON"],
  ["{", "valid JSON"],
  ["null", "object"],
  ["[]", "object"],
  ["1", "object"],
  ["{}", "body.name: required; body.categoryId: required"],
  [`{"name":"a"}`, "body.categoryId: required"],
  [`{"categoryId":1}`, "body.name: required"],
  [`{"name":null,"categoryId":1}`, "body.name: expected string"],
  [`{"name":1,"categoryId":1}`, "body.name: expected string"],
  [`{"name":"\\u0000","categoryId":1}`, "body.name: expected a string without U+0000"],
  [`{"name":"\\ud800","categoryId":1}`, "body.name: expected a string without U+0000"],
  [`{"name":"${"x".repeat(1_001)}","categoryId":1}`, "body.name: expected a string of at most 1,000 characters"],
  [`{"name":"${"🐈".repeat(1_001)}","categoryId":1}`, "body.name: expected a string of at most 1,000 characters"],
  [`{"name":"a","categoryId":"1"}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1.5}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1e-1}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1e400}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1e999999999}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":9223372036854775808}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":-9223372036854775809}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1,"status":null}`, "body.status: expected available, pending or sold"],
  [`{"name":"a","categoryId":1,"status":"Sold"}`, "body.status: expected available, pending or sold"],
  [`{"name":"a","categoryId":1,"__proto__":{"status":"sold"}}`, "expected JSON without duplicate names or __proto__"],
  [`{"name":"a","categoryId":1,"x":[{"__prot\\u006f__":1}]}`, "expected JSON without duplicate names or __proto__"],
  [`{"name":"a","categoryId":1,"name":"a"}`, "expected JSON without duplicate names or __proto__"],
  [
    `{"name":"a","categoryId":1,"x":{"y":[1,{"a":1,"\\u0061":2}]}}`,
    "expected JSON without duplicate names or __proto__"
  ],
  [`{"name":"a","categoryId":${"9".repeat(60_000)}}`, "body.categoryId: expected an int64 integer"],
  [`{"name":"a","categoryId":1,"x":${"[".repeat(1_000)}${"]".repeat(1_000)}}`, "expected JSON of at most 1,000 levels"],
  ["[".repeat(30_000) + "]".repeat(30_000), "expected JSON of at most 1,000 levels"],
  ["[".repeat(60_000), "expected valid JSON"]
] as const

for (const store of [...stores, ...PgBouncer.stores]) {
  describe.skipIf(store.skip)(`The contract on ${store.name}`, () => {
    layer(service(store.layer))((it) => {
      it.effect("lists, creates and gets pets as SPEC §4 shows them", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          assertSuccess(yield* call("/v1/pets", { key }), 200, "[]")
          const first = `{"id":1,"name":"Rex","categoryId":2,"status":"available"}`
          assertSuccess(yield* post(key, `{"name":"Rex","categoryId":2,"status":"available"}`), 201, first)
          const second = `{"id":2,"name":"Tom","categoryId":3}`
          assertSuccess(yield* post(key, `{"name":"Tom","categoryId":3,"unknown":[]}`), 201, second)
          assertSuccess(yield* call("/v1/pets/1", { key }), 200, first)
          assertSuccess(yield* call("/v1/pets", { key }), 200, `[${first},${second}]`)
          assertSuccess(yield* call("/v1/pets?limit=1", { key }), 200, `[${first}]`)
          assertSuccess(yield* call("/v1/pets?status=available&limit=100", { key }), 200, `[${first}]`)
          assertSuccess(yield* call("/v1/pets?status=sold", { key }), 200, "[]")
        }))

      it.effect("responds to an invalid chunk with an error of its request, also if it arrives while the key is looked up", () =>
        Effect.gen(function*() {
          const { newUnlimitedKey, send } = yield* Service
          const responses = yield* Effect.replicateEffect(
            Effect.flatMap(newUnlimitedKey, (key) =>
              send(
                `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
                  `Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`
              )),
            5
          )
          for (const { headers, status, text } of responses) {
            assert.strictEqual(status, 400, text)
            assert.strictEqual(headers.get("x-ratelimit-remaining"), String(2e9 - 1))
          }
        }))

      it.effect("links each page to the next with its filter and limit, while the table grows", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const name = `listed ${Math.random()}`
          for (let i = 0; i < 11; i++) {
            assert.strictEqual(
              (yield* post(key, `{"name":"${name}","categoryId":${i},"status":"pending"}`)).status,
              201
            )
          }
          const listed: Array<{ readonly name: string; readonly categoryId: number }> = []
          let next: string | undefined = "/v1/pets?status=pending&limit=3"
          while (next !== undefined) {
            const page: ReceivedResponse = yield* call(next, { key })
            listed.push(...JSON.parse(page.text))
            const link: string | null = page.headers.get("link")
            if (link === null) break
            next = /^<(\/v1\/pets\?[^>]+)>; rel="next"$/.exec(link)?.[1]
            assert.include(next, "limit=3&status=pending&cursor=")
            assert.strictEqual(JSON.parse(page.text).length, 3)
            if (listed.length < 9) yield* post(key, `{"name":"late","categoryId":1,"status":"pending"}`)
          }
          assert.deepStrictEqual(
            listed.filter((pet) => pet.name === name).map(({ categoryId }) => categoryId),
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
          )
          assert.isNull((yield* call("/v1/pets?limit=100", { key })).headers.get("link"))
          for (const cursor of ["", "x", "MQ==", "MDE", "LTA", "MS41", "OTIyMzM3MjAzNjg1NDc3NTgwOA"]) {
            assertError(yield* call(`/v1/pets?cursor=${cursor}`, { key }), 400, "invalid_request")
          }
        }))

      it.effect("creates one pet for one Idempotency-Key, quoted or not, and marks each replay of its response", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const create = (idempotencyKey: string, body = `{"name":"once","categoryId":1}`, by = key) =>
            call("/v1/pets", {
              key: by,
              method: "POST",
              body,
              headers: { "content-type": "application/json", "idempotency-key": idempotencyKey }
            })
          const responses = yield* Effect.all(Array.from({ length: 20 }, () => create("a-1")), {
            concurrency: "unbounded"
          })
          const [first = yield* create("a-1")] = responses
          const isReplay = ({ headers }: { readonly headers: Headers }) => headers.get("idempotent-replayed")
          assert.sameMembers(responses.map(isReplay), [null, ...Array(19).fill("true")])
          const later = [yield* create(`"a-1"`), yield* create("a-1", `{"categoryId":1.0,"name":"once"}`)]
          assert.deepStrictEqual(later.map(isReplay), ["true", "true"])
          for (const response of [...responses, ...later]) {
            assertSuccess(response, 201, first.text)
            assert.strictEqual(response.headers.get("location"), first.headers.get("location"))
          }
          const reused = yield* create("a-1", `{"name":"twice","categoryId":1}`)
          assertError(reused, 422, "idempotency_key_reused")
          assert.isNull(isReplay(reused))
          const ofOtherKey = yield* create("a-1", undefined, yield* newKey)
          assert.notStrictEqual(ofOtherKey.text, first.text)
          assert.isNull(isReplay(ofOtherKey))
          for (const invalid of ["", `""`, "x".repeat(256), "a b", `"a`]) {
            assertError(yield* create(invalid), 400, "invalid_request")
          }
          assert.strictEqual((yield* create("x".repeat(255))).status, 201)
        }))

      it.effect("keeps every digit of 64-bit integers, in any JSON notation", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const integers = [
            ["9223372036854775807", "9223372036854775807"],
            ["-9223372036854775808", "-9223372036854775808"],
            ["9007199254740993", "9007199254740993"],
            ["-1", "-1"],
            ["-0", "0"],
            ["1e3", "1000"],
            ["120.0", "120"],
            ["9.223372036854775807E+18", "9223372036854775807"],
            ["0e999999999", "0"]
          ]
          for (const [sent, returned] of integers) {
            const created = yield* post(key, `{"name":"n","categoryId":${sent}}`)
            assert.strictEqual(created.status, 201, created.text)
            const id = /"id":(\d+)/.exec(created.text)?.[1]
            assertSuccess(created, 201, `{"id":${id},"name":"n","categoryId":${returned}}`)
            assertSuccess(yield* call(`/v1/pets/${id}`, { key }), 200, created.text)
          }
        }))

      it.effect("stores any name of at most 1,000 characters that UTF-8 can encode", () =>
        Effect.gen(function*() {
          const { newKey } = yield* Service
          const key = yield* newKey
          for (
            const name of [
              "",
              " ",
              "'; DROP TABLE pets; --",
              "\u0001\u001f\"\\/",
              "ﷺ🐈‍⬛\u{10ffff}",
              "x".repeat(1_000),
              "🐈".repeat(1_000)
            ]
          ) {
            const response = yield* post(key, JSON.stringify({ name, categoryId: 1 }))
            assert.strictEqual(response.status, 201)
            assert.strictEqual(JSON.parse(response.text).name, name)
          }
        }))

      it.effect("returns 400 for a body that is not a NewPet, and names each invalid field and its expected value", () =>
        Effect.gen(function*() {
          const { newKey } = yield* Service
          const key = yield* newKey
          for (const [body, message] of invalidBodies) {
            const response = yield* post(key, body)
            assertError(response, 400, "invalid_request")
            assert.include(JSON.parse(response.text).message, message)
          }
        }))

      it.effect("ignores unknown fields of a body, whatever they contain", () =>
        Effect.gen(function*() {
          const { newKey } = yield* Service
          const key = yield* newKey
          const unknown = [
            `"x":{"name":1},"y":[{"name":1},{"name":":"}]`,
            `"{\\"name\\":\\\\":1,"x":"\\"}{"`,
            `"x":${"[".repeat(999)}${"]".repeat(999)}`
          ]
          for (const fields of unknown) {
            const response = yield* post(key, `{"name":"{\\"name\\":\\\\",${fields},"categoryId":1}`)
            assert.strictEqual(response.status, 201, response.text)
            assert.strictEqual(JSON.parse(response.text).name, `{"name":\\`)
          }
        }))

      it.effect("returns 400 for invalid UTF-8, and creates no pet", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const before = yield* call("/v1/pets?limit=100", { key })
          for (const bytes of [[0xff], [0xc3, 0x28], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82]]) {
            const body = Buffer.concat([Buffer.from(`{"categoryId":1,"name":"`), Buffer.from(bytes), Buffer.from(`"}`)])
            const headers = { "content-type": "application/json" }
            assertError(yield* call("/v1/pets", { key, method: "POST", body, headers }), 400, "invalid_request")
          }
          assert.strictEqual((yield* call("/v1/pets?limit=100", { key })).text, before.text)
        }))

      it.effect("returns 400 for an invalid limit, status or id", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const limits = ["0", "101", "-1", "1.5", "1e1", "", "a", "%20", "1&limit=2", "9".repeat(1000)]
          for (const limit of limits) {
            const response = yield* call(`/v1/pets?limit=${limit}`, { key })
            assertError(response, 400, "invalid_request")
            assert.include(response.text, "query.limit: expected an integer from 1 to 100")
          }
          for (const status of ["", "Sold", "lost", "sold&status=sold", "sold,pending"]) {
            const response = yield* call(`/v1/pets?status=${status}`, { key })
            assertError(response, 400, "invalid_request")
            assert.include(response.text, "query.status: expected available, pending or sold")
          }
          for (
            const id of ["", "a", "1.5", "1e3", "0x1", "9223372036854775808", "%00", "%F0%9F%90%88", "1".repeat(5000)]
          ) {
            const response = yield* call(`/v1/pets/${id}`, { key })
            assertError(response, 400, "invalid_request")
            assert.include(response.text, "path.petId: expected an int64 integer")
          }
        }))

      it.effect("returns 404 for a pet that does not exist", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          for (const id of ["0", "-1", "9223372036854775807", "-9223372036854775808"]) {
            assertError(yield* call(`/v1/pets/${id}`, { key }), 404, "not_found")
          }
        }))

      it.effect("returns 401 before it checks anything else in the request", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          const requests: ReadonlyArray<readonly [string, RequestInit?]> = [
            ["/v1/pets"],
            ["/v1/pets?limit=0"],
            ["/v1/pets/x"],
            ["/v1/pets", { method: "POST", body: "{" }]
          ]
          for (const [path, options] of requests) {
            assertError(yield* call(path, options), 401, "missing_api_key")
            for (const authorization of ["Basic YTpi", "Bearer", "Bearer ", key]) {
              assertError(yield* call(path, { ...options, headers: { authorization } }), 401, "missing_api_key")
            }
            for (const invalid of ["x", `${key}x`, "psk_" + "0".repeat(38)]) {
              assertError(yield* call(path, { ...options, key: invalid }), 401, "invalid_api_key")
            }
          }
          assert.strictEqual((yield* call("/v1/pets", { headers: { authorization: `bearer   ${key}` } })).status, 200)
        }))

      it.effect("returns 404 for an unknown path and 405 with Allow for an unsupported method, with or without a key", () =>
        Effect.gen(function*() {
          const { call, newKey } = yield* Service
          const key = yield* newKey
          for (
            const path of [
              "/v1",
              "/v2/pets",
              "//v1/pets",
              "/v1/pets/1/x",
              "/V1/pets",
              "/v1/%zz",
              "/v1/store/orders"
            ]
          ) {
            assertError(yield* call(path), 404, "not_found")
            assertError(yield* call(path, { key }), 404, "not_found")
          }
          assertError(yield* call("/v1/pets/%zz", { key }), 400, "invalid_request")
          assert.strictEqual(
            (yield* call("/openapi.json", { method: "PUT" })).headers.get("allow"),
            "GET, HEAD, OPTIONS"
          )
          for (const method of ["PUT", "DELETE", "PATCH"]) {
            const response = yield* call("/v1/pets", { key, method })
            assertError(response, 405, "method_not_allowed")
            assert.strictEqual(response.headers.get("allow"), "GET, HEAD, POST, OPTIONS")
            assert.strictEqual((yield* call("/v1/pets/1", { method })).headers.get("allow"), "GET, HEAD, OPTIONS")
          }
        }))

      it.effect("returns 413 for a body over 64 KiB and 415 for one that is not JSON", () =>
        Effect.gen(function*() {
          const { newKey } = yield* Service
          const key = yield* newKey
          const pet = (length: number) => `{"name":"","categoryId":1}`.padEnd(length)
          assert.strictEqual(pet(65_536).length, 65_536)
          assert.strictEqual((yield* post(key, pet(65_536))).status, 201)
          assertError(yield* post(key, pet(65_537)), 413, "payload_too_large")
          assertError(
            yield* post(key, "name=a&categoryId=1", "application/x-www-form-urlencoded"),
            415,
            "unsupported_media_type"
          )
          assertError(yield* post(key, "{}", "text/plain"), 415, "unsupported_media_type")
          assert.strictEqual((yield* post(key, pet(26), "application/json; charset=utf-8")).status, 201)
        }))
    })
  })
}
