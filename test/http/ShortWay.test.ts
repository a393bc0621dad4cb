/** The short way answers as the HttpApi does: the same requests over sockets and through the HttpApi alone. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Option, Redacted, Schema, Tracer } from "effect"
import {
  HttpClient,
  HttpClientRequest,
  HttpRouter,
  HttpServer,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { jsonText } from "../../src/api/Int64.ts"
import { nextLink } from "../../src/api/Paging.ts"
import { ListQuery, NewPet, Pet, Pets } from "../../src/api/Pets.ts"
import { ApiKeys } from "../../src/ApiKeys.ts"
import { AdmissionControl } from "../../src/http/AdmissionControl.ts"
import { Draining } from "../../src/http/Draining.ts"
import { routerConfig } from "../../src/http/Paths.ts"
import * as PetQuery from "../../src/http/PetQuery.ts"
import { petsText, petText, readNewPet } from "../../src/http/PetText.ts"
import { routes } from "../../src/http/Server.ts"
import { RateLimiter } from "../../src/RateLimiter.ts"
import { memory, Service, service } from "../Harness.ts"

const pet = (integer: fc.Arbitrary<bigint>) =>
  fc.record({
    id: integer,
    name: fc.string({ unit: "binary" }).filter((name) => name.isWellFormed() && !name.includes("\0")),
    categoryId: integer,
    status: fc.constantFrom("available" as const, "pending" as const, "sold" as const)
  }, { requiredKeys: ["id", "name", "categoryId"] })

/** Also pages all of whose numbers JavaScript holds, and those on the edge of that. */
const pages = fc.oneof(
  ...[
    fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n),
    fc.maxSafeInteger().map(BigInt),
    fc.bigInt(2n ** 53n - 3n, 2n ** 53n + 3n)
  ].map((integer) => fc.array(pet(integer), { maxLength: 5 }))
)

describe("The short way", () => {
  it("writes animals as the contract's schemas do", () => {
    const one = Schema.encodeSync(jsonText("Pet", Pet))
    const many = Schema.encodeSync(jsonText("Pets", Pets))
    fc.assert(
      fc.property(pages, (pets) => {
        for (const each of pets) assert.strictEqual(petText(each), one(each))
        assert.strictEqual(petsText(pets), many(pets))
      }),
      { numRuns: 2_000 }
    )
  })

  it("reads animals to be added as the contract's schema does, or leaves them to it", () => {
    const read = Schema.decodeUnknownOption(jsonText("NewPet", NewPet))
    const field = fc.oneof(fc.string({ unit: "binary" }), fc.integer(), fc.double(), fc.bigInt(), fc.jsonValue())
    const text = fc.oneof(
      // Mostly right, and written as a program writes it.
      fc.record({
        name: fc.oneof(fc.string({ unit: "binary" }), field),
        categoryId: fc.oneof(fc.integer(), fc.maxSafeInteger(), field),
        status: fc.oneof(fc.constantFrom("available", "pending", "sold"), field),
        other: field
      }, { requiredKeys: [] }).map((value) =>
        JSON.stringify(value, (_, each: unknown) => typeof each === "bigint" ? JSON.rawJSON(String(each)) : each)
      ),
      // Written as nobody expects.
      fc.array(
        fc.tuple(
          fc.constantFrom("name", "categoryId", "status", "__proto__", "n\\u0061me"),
          fc.constantFrom(
            `"x"`,
            `"\\ud800"`,
            `"\\u0000"`,
            "1",
            "-0",
            "1e3",
            "1.0",
            "9007199254740993",
            `"sold"`,
            "null"
          )
        ).map(([name, value]) => `"${name}":${value}`),
        { maxLength: 4 }
      ).map((fields) => `{${fields.join()}}`),
      fc.json()
    )
    let shortly = 0
    fc.assert(
      fc.property(text, (given) => {
        const pet = readNewPet(given)
        if (pet === undefined) return
        shortly++
        assert.deepStrictEqual(Option.some(pet), read(given))
      }),
      { numRuns: 20_000 }
    )
    assert.isAbove(shortly, 100)
  })

  it("reads the query of a list as the contract's schema does, or leaves it to it, and writes that of the next page", () => {
    const read = Schema.decodeUnknownOption(ListQuery)
    const link = Schema.encodeSync(nextLink("/v1/pets", ListQuery))
    const base64Url = (text: string) => Buffer.from(text).toString("base64url")
    const value = fc.oneof(
      fc.integer({ min: -1, max: 1_001 }).map(String),
      fc.constantFrom("available", "pending", "sold", "lost", "", "007", "0100", "+1", "%31"),
      fc.bigInt(-(2n ** 64n), 2n ** 64n).map((id) => base64Url(String(id))),
      fc.nat().map((id) => base64Url(String(id))),
      fc.string().map(base64Url),
      fc.constantFrom("0", "-0", "007", "1.0", " 1").map(base64Url),
      fc.nat().map((id) => `${base64Url(String(id))}=`),
      fc.webQueryParameters()
    )
    const parameter = fc.tuple(
      fc.constantFrom("limit", "status", "cursor", "other", ""),
      fc.constantFrom("=", "=", "=", ""),
      value
    )
    let shortly = 0
    fc.assert(
      fc.property(
        fc.constantFrom("?", "?", "?", "", "/"),
        fc.array(parameter, { maxLength: 3 }),
        (begin, parameters) => {
          const text = begin + parameters.map((parts) => parts.join("")).join("&")
          const query = PetQuery.read(text)
          if (query === undefined) return
          shortly++
          const given = [...new URLSearchParams(text)]
          assert.lengthOf(given, Object.keys(query).length)
          assert.deepStrictEqual(Option.some(query), read(Object.fromEntries(given)))
          const next = { ...query, cursor: query.cursor ?? 1n }
          assert.strictEqual(`</v1/pets${PetQuery.write(next)}>; rel="next"`, link(next))
        }
      ),
      { numRuns: 20_000 }
    )
    assert.isAbove(shortly, 1_000)
  })
})

/** The HttpApi as a client sees it that comes over no socket: so that no request is plain. */
const longWay = Effect.gen(function*() {
  const answer = yield* HttpRouter.toHttpEffect(routes)
  const key = yield* Effect.flatMap(ApiKeys, (keys) => keys.issue({ name: "test", plan: "free" }))
  return {
    key: Redacted.value(key.key),
    client: HttpClient.make((request) =>
      answer.pipe(
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
    "have the same answers by the short way, traced, and by the long way, refusals at the limits included",
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
        const short = yield* Effect.provide(overSockets, Layer.fresh(service(memory)))
        // Within Effect's server, for the sake of its spans.
        const tracer = Layer.succeed(Tracer.Tracer, Tracer.make({ span: (options) => new Tracer.NativeSpan(options) }))
        const traced = yield* Effect.provide(overSockets, Layer.fresh(Layer.provide(service(memory), tracer)))
        const long = yield* Effect.gen(function*() {
          const { client, key } = yield* longWay
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
            Draining.layer
          ])
        )
        // What differs by itself, or belongs to the connection.
        const without = new Set([
          "x-request-id",
          "date",
          "connection",
          "keep-alive",
          "transfer-encoding",
          "content-length"
        ])
        const comparable = (answers: typeof short) =>
          answers.map(({ headers, ...answer }) => ({
            ...answer,
            headers: Object.fromEntries(
              Object.entries(headers).filter(([name]) =>
                !without.has(name)
              ).toSorted(([a], [b]) => a < b ? -1 : 1)
            )
          }))
        assert.deepStrictEqual(comparable(short), comparable(long))
        assert.deepStrictEqual(comparable(traced), comparable(long))
        assert.isAbove(short.filter(({ status }) => status === 429).length, 5)
      }),
    30_000
  )
})
