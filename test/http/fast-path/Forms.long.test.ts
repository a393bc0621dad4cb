/** Tests that the fast path serves a request in any form as HttpApi does, or passes the request to HttpApi. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { PetstoreApi } from "../../../src/api/PetstoreApi.ts"
import * as PetHandlers from "../../../src/http/handlers/PetHandlers.ts"
import { compare, type Request, twice } from "./Comparison.ts"

interface Plain {
  readonly method: string
  readonly target: string
  readonly headers: ReadonlyArray<readonly [string, string]>
  readonly body?: string
}

const usually = <A, B>(usual: fc.Arbitrary<A>, other: fc.Arbitrary<B>): fc.Arbitrary<A | B> =>
  fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: other })

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String)
const integer = usually(
  fc.nat(40_000).map(String),
  fc.oneof(int64, fc.constantFrom("0", "-1", "007", "1e3", "9223372036854775808", "1.0", "1.5", "", "x", "%31", "+1"))
)
const cursor = usually(
  fc.nat(40_000).map((id) => Buffer.from(String(id)).toString("base64url")),
  fc.oneof(int64.map((id) => Buffer.from(id).toString("base64url")), fc.constantFrom("", "MQ==", "MR", "MQ", "x", "0"))
)
const status = usually(
  fc.constantFrom("available", "pending", "sold"),
  fc.constantFrom("", "lost", "Sold", "sold,lost")
)
const limit = usually(
  fc.integer({ min: 1, max: 100 }).map(String),
  fc.constantFrom("0", "101", "", "01", "1.0", "x", "5")
)
const query = fc.array(
  usually(
    fc.oneof(
      fc.tuple(fc.constant("limit"), limit),
      fc.tuple(fc.constant("status"), status),
      fc.tuple(fc.constant("cursor"), cursor)
    ),
    fc.tuple(fc.constantFrom("other", "", "__proto__", "limit[]", "%6Cimit"), fc.constantFrom("", "1", "%20", "+"))
  ),
  { maxLength: 3 }
).map((parameters) => parameters.map(([name, value]) => `${name}=${value}`).join("&"))

const name = usually(
  fc.string({ maxLength: 30 }),
  fc.oneof(fc.string({ unit: "binary", maxLength: 30 }), fc.constantFrom("\u0000", "", "\u2028", "x".repeat(3_000)))
).map((value) => JSON.stringify(value))
/** Draws the JSON text of a pet, which is usually valid. */
const pet = fc.tuple(name, integer, fc.option(status), fc.constantFrom("", " ", "\n")).chain((
  [petName, categoryId, petStatus, space]
) => {
  const category = /^-?\d/.test(categoryId) ? categoryId : `"${categoryId}"`
  const fields = [`"name":${space}${petName}`, `"categoryId":${category}`]
  if (petStatus !== null) fields.push(`"status":"${petStatus}"`)
  const valid = `{${fields.join(`,${space}`)}}`
  return usually(
    fc.constant(valid),
    fc.constantFrom(
      `{${fields.toReversed().join()}}`,
      `{${fields.slice(1).join()}}`,
      `{${fields.join()},"more":[1.5,{"a":1}]}`,
      `{${fields.join()},${fields.join()}}`,
      valid.slice(1),
      `[${valid}]`,
      "null",
      "",
      `\ufeff${valid}`,
      valid.replace(/"$/, "\ud800\"")
    )
  )
})

const request: fc.Arbitrary<Plain> = fc.oneof(
  { weight: 4, arbitrary: query.map((text) => get(`/v1/pets${text === "" ? "" : `?${text}`}`)) },
  { weight: 3, arbitrary: integer.map((id) => get(`/v1/pets/${id}`)) },
  {
    weight: 3,
    arbitrary: fc.tuple(pet, fc.option(fc.constantFrom("a", `"b"`, "c", "d e", "f".repeat(256)), { freq: 5 }))
      .map(([body, key]): Plain => ({
        method: "POST",
        target: "/v1/pets",
        headers: [["content-type", "application/json"], ...key === null ? [] : [["idempotency-key", key] as const]],
        body
      }))
  },
  {
    weight: 1,
    arbitrary: fc.tuple(
      fc.constantFrom("HEAD", "PUT", "DELETE", "OPTIONS", "get", "PATCH"),
      fc.constantFrom("/v1/pets", "/v1/pets/1", "/v1/pets/", "/V1/pets", "/v1//pets", "/v1/pets;a", "/v1/pets/1/x", "*")
    ).map(([method, target]): Plain => ({ method, target, headers: [] }))
  }
)
const get = (target: string): Plain => ({ method: "GET", target, headers: [] })

/** Writes a request: its body, if any, is chunked or has a `Content-Length`. */
const framed = ({ body, headers, method, target }: Plain, isChunked: boolean): string => {
  const framing = body === undefined
    ? []
    : isChunked
    ? [["Transfer-Encoding", "chunked"]]
    : [["Content-Length", String(Buffer.byteLength(body))]]
  const bytes = body === undefined ? "" : isChunked ? chunked(body) : body
  const lines = [...headers, ...framing].map(([field, value]) => `${field}: ${value}\r\n`)
  return `${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n${bytes}`
}
const chunked = (body: string): string =>
  body.match(/[^]{1,7}/gu)?.map((part) => `${Buffer.byteLength(part).toString(16)}\r\n${part}\r\n`).join("")
    .concat("0\r\n\r\n") ?? "0\r\n\r\n"

/** Unusual forms of a request: other headers, targets and framing. */
const forms: ReadonlyArray<(plain: Plain) => string> = [
  (plain) => framed({ ...plain, headers: plain.headers.toReversed() }, false),
  (plain) => framed({ ...plain, headers: plain.headers.map(([field, value]) => [field.toUpperCase(), value]) }, false),
  (plain) => framed(plain, true),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["expect", "100-continue"]] }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["expect", "more"]] }, false),
  (plain) => framed({ ...plain, target: `${plain.target}${plain.target.includes("?") ? "&" : "?"}more=1` }, false),
  (plain) => framed({ ...plain, target: plain.target.replace("pets", "p%65ts") }, false),
  (plain) => framed({ ...plain, target: `http://localhost${plain.target}` }, false),
  (plain) => framed({ ...plain, target: `${plain.target}#a` }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["origin", "https://shop.example"]] }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["accept", "text/html"], ["cookie", "a=b"]] }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["authorization", "Bearer other"]] }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["content-encoding", "identity"]] }, false),
  (plain) => framed({ ...plain, headers: [...plain.headers, ["connection", "close"]] }, false),
  (plain) =>
    framed({
      ...plain,
      headers: plain.headers.map(([field, value]) => [
        field,
        field === "content-type" ? "application/json; charset=utf-8" : value
      ])
    }, false),
  (plain) =>
    framed(
      { ...plain, headers: plain.headers.filter(([field]) => field !== "host") },
      false
    ),
  (plain) => framed({ ...plain, headers: plain.headers.filter(([field]) => field !== "content-type") }, false),
  (plain) => framed({ ...plain, headers: plain.headers.filter(([field]) => field !== "authorization") }, false)
]

const form = fc.oneof(
  { weight: 2, arbitrary: fc.constant((plain: Plain) => framed(plain, false)) },
  { weight: 1, arbitrary: fc.constantFrom(...forms) }
)

/** Two keys: one never reaches its limits, the other one sometimes does. */
const plans = [
  { plan: "enterprise", limits: { perMinute: 2e9, perDay: 2e9 } },
  { plan: "enterprise", limits: { perMinute: 20, perDay: 2_000 } }
] as const
const key = fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.constant(1) })

const requests: fc.Arbitrary<Request> = fc.tuple(request, form, key).map(([plain, write, index]) => (keys) =>
  write({
    ...plain,
    headers: [
      ["host", "localhost"],
      ["authorization", `Bearer ${keys[index]}`],
      ["x-request-id", "r"],
      ...plain.headers
    ]
  })
)

const many = 100_000

describe("Requests to the contract in any form", () => {
  it.effect(
    `get the same bytes from the fast path as from HttpApi, with the same charges and pets, for ${many} requests`,
    () =>
      Effect.gen(function*() {
        yield* TestClock.setTime(1_763_700_000_000)
        const { fast, reference, taken } = twice(PetstoreApi)
        const handlers = Layer.fresh(Layer.provideMerge(PetHandlers.layer, PetHandlers.sunset))
        const statuses = yield* compare(
          [Layer.provide(fast, handlers), Layer.provide(reference, handlers)],
          plans,
          fc.sample(requests, { numRuns: many, seed: 1 })
        )
        for (const each of [200, 201, 204, 400, 401, 404, 405, 415, 417, 422, 429]) {
          assert.isAbove(statuses[each] ?? 0, 50, `${each}`)
        }
        assert.isAbove(taken.count, many / 3)
      }),
    300_000
  )
})
