/** Tests SPEC §4, §5 and §7 over a socket, byte by byte, and the operations on every store. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { assertError, assertErrorBody, assertSuccess } from "../support/Assertions.ts"
import { describeOnEach, memory, stores } from "../support/Databases.ts"
import * as PgBouncer from "../support/PgBouncer.ts"
import { Service, service } from "../support/Service.ts"
import type { ReceivedResponse } from "../support/Sockets.ts"

/** Requests with a new key of the Free plan. */
const newClient = Effect.gen(function*() {
  const { call, newKey } = yield* Service
  const key = yield* newKey
  return {
    key,
    get: (path: string) => call(path, { key }),
    post: (body: string | Buffer, headers: Readonly<Record<string, string>> = {}) =>
      call("/v1/pets", { key, method: "POST", body, headers: { "content-type": "application/json", ...headers } })
  }
})

const int64 = "body.categoryId: expected a whole number from -9223372036854775808 to 9223372036854775807"
const limit = "query.limit: expected one integer from 1 to 100"
const petId = "path.petId: expected a whole number from -9223372036854775808 to 9223372036854775807"
const statuses = "expected one of available, pending or sold"
const names = "expected JSON without duplicate names or __proto__"
const levels = "expected JSON nested at most 1,000 levels"

const invalidBodies: ReadonlyArray<readonly [body: string | Buffer, message: string]> = [
  ...[[0xff], [0xc3, 0x28], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82]].map((bytes) =>
    [Buffer.from([...Buffer.from(`{"categoryId":1,"name":"`), ...bytes, ...Buffer.from(`"}`)]), "UTF-8"] as const
  ),
  ["", "body: expected JSON, but the body is empty"],
  ["{", "valid JSON (Expected property name or '}' at position 1)."],
  [`{"name":"Rex","categoryId":3,}`, "valid JSON (Expected double-quoted property name at position 29)."],
  [`{"name":"Rex","tags":["a",],"categoryId":3}`, "valid JSON (Unexpected token ']' at position 26)."],
  [`{"name":"Rex","categoryId":NaN}`, "valid JSON (Unexpected token 'N' at position 27)."],
  [`{"name":"Unexpected token 'x', \n`, "valid JSON (Bad control character in string literal at position 31)."],
  ...["null", "[]", "1"].map((body) => [body, "object"] as const),
  ["{}", "body.name: required; body.categoryId: required"],
  [`{"name":"a","categoryId":1,"Status":"sold"}`, `body.Status: unknown field; did you mean "status"?`],
  [`{"name":"a","categoryId":1,"status":"sold","STATUS":1}`, `body.STATUS: unknown field; did you mean "status"?`],
  [`{"name":"a","category_id":1}`, `body.category_id: unknown field; did you mean "categoryId"?`],
  [`{"name":"a","category-id":1}`, `body.category-id: unknown field; did you mean "categoryId"?`],
  [`{"Name":"a","x":1,"categoryId":1}`, `body.name: required, but there is "Name".`],
  [`{"nmae":"a","x":1,"categoryId":1}`, `request: body.name: required, but there is "nmae".`],
  ...["null", "1"].map((name) => [`{"name":${name},"categoryId":1}`, "body.name: expected string"] as const),
  [`{"name":"\\u0000","categoryId":1}`, "body.name: expected a string without U+0000"],
  [`{"name":"\\ud800","categoryId":1}`, "body.name: expected a string without U+0000"],
  [`{"name":"${"x".repeat(1_001)}","categoryId":1}`, "body.name: expected a string of at most 1,000 characters"],
  [`{"name":"${"🐈".repeat(1_001)}","categoryId":1}`, "body.name: expected a string of at most 1,000 characters"],
  ...[`"1"`, "1.5", "1e-1", "1e999999999", "9223372036854775808", "-9223372036854775809", "9".repeat(16_000)].map(
    (categoryId) => [`{"name":"a","categoryId":${categoryId}}`, int64] as const
  ),
  [`{"name":"a","categoryId":1,"status":null}`, `body.status: ${statuses}`],
  [`{"name":"a","categoryId":1,"status":"Sold"}`, `body.status: ${statuses}`],
  [`{"name":"a","categoryId":1,"__proto__":{"status":"sold"}}`, names],
  [`{"name":"a","categoryId":1,"x":[{"__prot\\u006f__":1}]}`, names],
  [`{"name":"a","categoryId":1,"name":"a"}`, names],
  [`{"name":"a","categoryId":1,"x":{"y":[1,{"a":1,"\\u0061":2}]}}`, names],
  [`{"name":"a","categoryId":1,"x":${"[".repeat(1_000)}${"]".repeat(1_000)}}`, levels],
  ["[".repeat(8_000) + "]".repeat(8_000), levels],
  ["[".repeat(16_000), "expected valid JSON (Unexpected end)."]
]

/** Invalid values in a path or a query, separated by spaces, and the message for them. */
const invalidValues: ReadonlyArray<readonly [path: string, values: string, message: string]> = [
  ["/v1/pets?Limit", "=1 =0&page=2", `query.Limit: unknown parameter; did you mean "limit"?`],
  ["/v1/pets?_STATUS=", "sold", `query._STATUS: unknown parameter; did you mean "status"?`],
  ["/v1/pets?li-mit=", "1", `query.li-mit: unknown parameter; did you mean "limit"?`],
  ["/v1/pets?limit=", ` 0 101 -1 1.5 1e1 a %20 1&limit=2 ${"9".repeat(1000)}`, limit],
  ["/v1/pets?status=", " Sold lost sold&status=sold sold,pending", `query.status: ${statuses}`],
  ["/v1/pets?cursor=", " x MQ== MDE LTA MS41 OTIyMzM3MjAzNjg1NDc3NTgwOA Nw%3D%3D", "query.cursor"],
  ["/v1/pets/", "%zz", "percent-encoding"],
  ["/v1/pets/", `a 1.5 1e3 0x1 9223372036854775808 %00 %F0%9F%90%88 ${"1".repeat(5000)}`, petId]
]

/** Integers as a body may write them, and as a response writes them. */
const integers: ReadonlyArray<readonly [sent: string, returned: string]> = [
  ...["9223372036854775807", "-9223372036854775808", "9007199254740993"].map((text) => [text, text] as const),
  ...Object.entries({ "-0": "0", "1e3": "1000", "120.0": "120", "0e999999999": "0" }),
  ["9.223372036854775807E+18", "9223372036854775807"]
]

const unknownFields = [
  `"id":null,"ID":7,"page":1`,
  `"x":{"name":1},"y":[{"name":1},{"name":":"}]`,
  `"{\\"name\\":\\\\":1,"x":"\\"}{"`,
  `"x":${"[".repeat(999)}${"]".repeat(999)}`
]

const validNames = ["", " ", "'; -- 9007199254740993", "\u0001\u001f\"\\/", "ﷺ🐈‍⬛e\u0301\u{10ffff}", "🐈".repeat(1_000)]

/** A column check that the contract does not know, as after a change of the table by an operator. */
const rejectOneName = Layer.effectDiscard(Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`ALTER TABLE pets ADD CONSTRAINT one_name CHECK (name <> 'rejected')`
))
const failures: Array<unknown> = []
const loggers = [Logger.make(({ logLevel, message }) => logLevel === "Error" && failures.push(message))]
const rejecting = stores.slice(1).map((store) => ({
  ...store,
  layer: service(Layer.provideMerge(rejectOneName, store.layer), {}, { loggers })
}))

describeOnEach(rejecting, "A value that only the database rejects", (it) => {
  it.effect("fails its own request with 500, is logged once, and every other of a hundred creates gets 201", () =>
    Effect.gen(function*() {
      const { call, unlimitedKey } = yield* Service
      const key = yield* unlimitedKey
      const create = (name: string) =>
        call("/v1/pets", {
          key,
          method: "POST",
          body: JSON.stringify({ name, categoryId: 1 }),
          headers: { "content-type": "application/json" }
        })
      failures.length = 0
      const names = Array.from({ length: 100 }, (_, index) => index === 42 ? "rejected" : `${index}`)
      const responses = yield* Effect.forEach(names, create, { concurrency: "unbounded" })
      assert.deepStrictEqual(
        responses.map(({ status }) => status),
        names.map((name) => name === "rejected" ? 500 : 201)
      )
      assertErrorBody(responses[42] ?? assert.fail(), 500, "internal_error")
      assert.lengthOf(failures, 1)
    }))
})

const services = [...stores, ...PgBouncer.stores].map((store) => ({ ...store, layer: service(store.layer) }))

describeOnEach(services, "The contract", (it) => {
  it.effect("lists, creates and gets pets as SPEC §4 shows them", () =>
    Effect.gen(function*() {
      const { get, post } = yield* newClient
      const before = yield* post(`{"name":"before","categoryId":1}`)
      const id: number = JSON.parse(before.text).id + 1
      const cursor = `cursor=${Buffer.from(String(id - 1)).toString("base64url")}`
      assertSuccess(yield* get(`/v1/pets?${cursor}`), 200, "[]")
      const first = `{"id":${id},"name":"Rex","categoryId":2,"status":"available"}`
      assertSuccess(yield* post(`{"name":"Rex","categoryId":2,"status":"available"}`), 201, first)
      const second = `{"id":${id + 1},"name":"Tom","categoryId":3}`
      assertSuccess(yield* post(`{"name":"Tom","categoryId":3,"unknown":[]}`), 201, second)
      assertSuccess(yield* get(`/v1/pets/${id}`), 200, first)
      assertSuccess(yield* get(`/v1/pets?${cursor}`), 200, `[${first},${second}]`)
      assertSuccess(yield* get(`/v1/pets?limit=1&${cursor}`), 200, `[${first}]`)
      assertSuccess(yield* get(`/v1/pets?status=available&limit=100&${cursor}`), 200, `[${first}]`)
      assertSuccess(yield* get(`/v1/pets?status=sold&${cursor}`), 200, "[]")
      const unused = ["0", "-1", "9223372036854775807", "-9223372036854775808"]
      for (const id of unused) assertError(yield* get(`/v1/pets/${id}`), 404, "not_found", `There is no pet ${id}.`)
    }))

  it.effect("links each page to the next with its filter and limit, while the table grows", () =>
    Effect.gen(function*() {
      const { get, post } = yield* newClient
      const name = `listed ${Math.random()}`
      for (let i = 0; i < 11; i++) yield* post(`{"name":"${name}","categoryId":${i},"status":"pending"}`)
      const listed: Array<{ readonly name: string; readonly categoryId: number }> = []
      for (let next: string | undefined = "/v1/pets?status=pending&limit=3"; next !== undefined;) {
        const page: ReceivedResponse = yield* get(next)
        const pets = JSON.parse(page.text)
        listed.push(...pets)
        next = /^<(\/v1\/pets\?[^>]+)>; rel="next"$/.exec(page.headers.get("link") ?? "")?.[1]
        if (next === undefined) break
        assert.include(next, "limit=3&status=pending&cursor=")
        // The cursor works with another limit and without the filter.
        const { text } = yield* get(next.replace("limit=3&status=pending", "limit=1"))
        assert.isAbove(JSON.parse(text)[0].id, pets.at(-1).id)
        assert.lengthOf(pets, 3)
        if (listed.length < 9) yield* post(`{"name":"late","categoryId":1,"status":"pending"}`)
      }
      const categories = listed.filter((pet) => pet.name === name).map(({ categoryId }) => categoryId)
      assert.deepStrictEqual(categories, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
      assert.isNull((yield* get("/v1/pets?limit=100")).headers.get("link"))
    }))

  it.effect("creates one pet for one Idempotency-Key, quoted or not, and marks each replay of its response", () =>
    Effect.gen(function*() {
      const [{ post }, other] = [yield* newClient, yield* newClient]
      const pet = `{"name":"once","categoryId":1}`
      const create = (idempotencyKey: string, body = pet) => post(body, { "idempotency-key": idempotencyKey })
      const isReplay = ({ headers }: ReceivedResponse) => headers.get("idempotent-replayed")
      const concurrent = yield* Effect.all(Array.from({ length: 20 }, () => create("a-1")), { concurrency: 20 })
      assert.sameMembers(concurrent.map(isReplay), [null, ...Array(19).fill("true")])
      const later = [yield* create(`"a-1"`), yield* create("a-1", `{"categoryId":1.0,"name":"once"}`)]
      assert.deepStrictEqual(later.map(isReplay), ["true", "true"])
      const [first = yield* create("a-1")] = concurrent
      for (const response of [...concurrent, ...later]) {
        assertSuccess(response, 201, first.text)
        assert.strictEqual(response.headers.get("location"), `/v1/pets/${JSON.parse(first.text).id}`)
      }
      const reused = yield* create("a-1", `{"name":"twice","categoryId":1}`)
      assertError(reused, 422, "idempotency_key_reused")
      assertSuccess(yield* create("a-1"), 201, first.text)
      const ofOtherKey = yield* other.post(pet, { "idempotency-key": "a-1" })
      assert.notStrictEqual(ofOtherKey.text, first.text)
      assert.deepStrictEqual([reused, ofOtherKey].map(isReplay), [null, null])
      for (const invalid of ["", `""`, "x".repeat(256), "a b", `"a`]) {
        assertError(yield* create(invalid), 400, "invalid_request", "header.idempotency-key: expected one idempotency")
      }
      assert.strictEqual((yield* create("x".repeat(255))).status, 201)
    }))

  it.effect("keeps every digit of 64-bit integers and every character of names, and ignores unknown fields", () =>
    Effect.gen(function*() {
      const { get, post } = yield* newClient
      for (const [sent, returned] of integers) {
        const created = yield* post(`{"name":"n","categoryId":${sent}}`)
        const id = /"id":(\d+)/.exec(created.text)?.[1]
        assertSuccess(created, 201, `{"id":${id},"name":"n","categoryId":${returned}}`)
        assertSuccess(yield* get(`/v1/pets/${id}`), 200, created.text)
      }
      for (const name of validNames) {
        for (const unknown of unknownFields) {
          const { status, text } = yield* post(`{"name":${JSON.stringify(name)},${unknown},"categoryId":1}`)
          const created = JSON.parse(text)
          assert.deepStrictEqual([status, created], [201, { id: created.id, name, categoryId: 1 }])
        }
      }
    }))
})

layer(service(memory))("The contract, before a request reaches the store", (it) => {
  const bodies = invalidBodies.map(([body, message]) => [body.toString().slice(0, 60), message, body] as const)
  it.effect.each(bodies)("creates no pet from %s, and returns 400: %s", ([, message, body]) =>
    Effect.gen(function*() {
      const { get, post } = yield* newClient
      assertError(yield* post(body), 400, "invalid_request", message)
      assertSuccess(yield* get("/v1/pets"), 200, "[]")
    }))

  const paths = invalidValues.flatMap(([path, values, message]) =>
    values.split(" ").map((value) => [path + value.slice(0, 60), message, path + value] as const)
  )
  it.effect.each(paths)("returns 400 for %s, with %s", ([, message, path]) =>
    Effect.gen(function*() {
      assertError(yield* (yield* newClient).get(path), 400, "invalid_request", message)
    }))

  it.effect("names the first ten of twelve parameters that differ from known ones in case, _ or -", () =>
    Effect.gen(function*() {
      const names = ["Limit", "LImit", "LIMit", "LIMIt", "LIMIT", "l_imit", "l-imit", "Status", "STatus", "STAtus"]
      const { get } = yield* newClient
      const rejected = yield* get(`/v1/pets?${[...names, "Cursor", "CUrsor"].map((name) => `${name}=1`).join("&")}`)
      assertError(rejected, 400, "invalid_request")
      assert.deepStrictEqual([...rejected.text.matchAll(/query\.([\w-]+)/g)].map(([, name]) => name), names)
    }))

  it.effect("returns 401 before it checks anything else in the request", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const { key } = yield* newClient
      const post = { method: "POST", body: "{" }
      const requests = [["/v1/pets", {}], ["/v1/pets?limit=0", {}], ["/v1/pets/x", {}], ["/v1/pets", post]] as const
      for (const [path, options] of requests) {
        assertError(yield* call(path, options), 401, "missing_api_key")
        for (const authorization of ["Basic YTpi", "Bearer", "Bearer ", key]) {
          assertError(yield* call(path, { ...options, headers: { authorization } }), 401, "missing_api_key")
        }
        const changed = key.slice(0, -1) + (key.endsWith("0") ? "1" : "0")
        for (const invalid of [`${key}x`, changed, "ü".repeat(42)]) {
          const message = "The API key is incomplete or mistyped."
          assertError(yield* call(path, { ...options, key: invalid }), 401, "invalid_api_key", message)
        }
      }
      assert.strictEqual((yield* call("/v1/pets", { headers: { authorization: `bearer   ${key}` } })).status, 200)
    }))
})
