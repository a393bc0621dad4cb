/**
 * Tests that the fast path serves any contract as HttpApi does. The test invents a contract that combines the features
 * of contracts.
 */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import {
  HttpApi,
  HttpApiBuilder,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema
} from "effect/http-api"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { Auth } from "../../../src/api/Auth.ts"
import { RateLimit } from "../../../src/api/RateLimit.ts"
import { Validation } from "../../../src/api/Validation.ts"
import { compare, type Request, twice } from "./Comparison.ts"

const Condition = Schema.Enum({ New: "new", Used: "used", Worn: "worn" })

const Content = Schema.Union([
  Schema.Struct({ kind: Schema.tag("novel"), pages: Schema.Int }),
  Schema.Struct({ kind: Schema.tag("record"), minutes: Schema.Finite, tracks: Schema.Array(Schema.String) })
])

const Book = Schema.Struct({
  title: Schema.NonEmptyString,
  author: Schema.Struct({ name: Schema.String, born: Schema.optionalKey(Schema.DateFromString) }),
  content: Content,
  condition: Condition,
  price: Schema.NullOr(Schema.Finite)
})

const Shelved = Schema.Struct({ number: Schema.Int, at: Schema.DateFromString, book: Book })

class Locked extends Schema.TaggedError<Locked>()("Locked", { until: Schema.DateFromString, by: Schema.String }) {}
class Missing extends Schema.TaggedError<Missing>()("Missing", { number: Schema.Int }) {}
class Unreadable extends Schema.TaggedError<Unreadable>()("Unreadable", { language: Schema.String }) {}

const locked = Locked.pipe(HttpApiSchema.encodeToWithHeaders({
  body: Schema.Struct({ by: Schema.String, until: Schema.DateFromString }).pipe(HttpApiSchema.status(423)),
  headers: { "x-until": Schema.DateFromString, "x-by": Schema.optionalKey(Schema.String) }
}, {
  decode: ({ body }) => new Locked(body),
  encode: ({ by, until }) => ({ body: { by, until }, headers: { "x-until": until, ...by !== "" && { "x-by": by } } })
}))
const missing = Missing.pipe(HttpApiSchema.status(404))

/** The language that a caller reads. The contract's own middleware provides it. */
class Language extends Context.Service<Language, string>()("test/http/fast-path/Language") {}
class Languages
  extends HttpApiMiddleware.Service<Languages, { provides: Language }>()("test/http/fast-path/Languages", {
    error: Unreadable.pipe(HttpApiSchema.status(406))
  })
{}

const number = Schema.FiniteFromString.check(Schema.isInt())

const list = HttpApiEndpoint.get("list", "/shelves/:shelf/books", {
  params: { shelf: Schema.Literals(["left", "right"]) },
  query: {
    titles: Schema.optionalKey(Schema.Array(Schema.String)),
    since: Schema.optionalKey(Schema.DateFromString),
    most: number.pipe(Schema.withDecodingDefaultKey(Effect.succeed("5"))),
    condition: Schema.optionalKey(Condition)
  },
  success: Schema.Array(Shelved)
})
const find = HttpApiEndpoint.get("find", "/books/:number", {
  params: { number },
  headers: { "if-match": Schema.optionalKey(Schema.Trim) },
  success: Shelved.pipe(HttpApiSchema.encodeToWithHeaders({
    body: Shelved,
    headers: { etag: Schema.String, "x-language": Schema.optionalKey(Schema.String) }
  }, {
    decode: ({ body }) => body,
    encode: (shelved) => ({ body: shelved, headers: { etag: `"${shelved.number}"` } })
  })),
  error: [missing, locked]
}).middleware(Languages)
const add = HttpApiEndpoint.post("add", "/shelves/:shelf/books", {
  params: { shelf: Schema.Literals(["left", "right"]) },
  payload: Book,
  success: Shelved.pipe(HttpApiSchema.status(201)),
  error: locked
})
const replace = HttpApiEndpoint.put("replace", "/books/:number", {
  params: { number },
  payload: Schema.Struct({ condition: Condition, by: Schema.optionalKey(Schema.String) }),
  success: Schema.Union([Shelved, Schema.Struct({ unchanged: Schema.Literal(true) })]),
  error: [missing, locked]
})
const remove = HttpApiEndpoint.delete("remove", "/books/:number", {
  params: { number },
  query: { reason: Schema.optionalKey(Schema.NonEmptyString) },
  error: missing
})

class Library extends HttpApi.make("library")
  .add(
    HttpApiGroup.make("books").add(list, find, add, replace, remove)
      .middleware(Validation).middleware(RateLimit).middleware(Auth)
  )
  .prefix("/v2")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
{}

/** Returns handlers that record their inputs in `effects`. */
const handlers = (effects: Array<unknown>) => {
  const books = new Map<number, typeof Shelved.Type>()
  let last = 0
  const get = (key: number) =>
    Effect.suspend(() => {
      const found = books.get(key)
      return found === undefined ? Effect.fail(new Missing({ number: key })) : Effect.succeed(found)
    })
  const until = new Date(1e12)
  const group = HttpApiBuilder.group(Library, "books", (builder) =>
    builder.handleAll({
      list: ({ params, query }) =>
        Effect.sync(() => {
          effects.push(["list", params, query])
          return [...books.values()]
            .filter(({ at, book: { condition, title } }) =>
              (query.titles === undefined || query.titles.includes(title)) &&
              (query.since === undefined || at >= query.since) &&
              (query.condition === undefined || query.condition === condition)
            )
            .slice(0, Math.max(0, query.most))
        }),
      find: Effect.fnUntraced(function*({ headers, params }) {
        const language = yield* Language
        effects.push(["find", params, headers["if-match"], language])
        if (language === "fr") return yield* new Locked({ by: params.number % 2 === 0 ? "" : "reader", until })
        return yield* get(params.number)
      }),
      add: Effect.fnUntraced(function*({ params, payload }) {
        effects.push(["add", params, payload])
        if (payload.title === "locked") return yield* new Locked({ by: params.shelf, until })
        last = last % 30 + 1
        const shelved = { number: last, at: new Date(last * 1e9), book: payload }
        books.set(last, shelved)
        return shelved
      }),
      replace: Effect.fnUntraced(function*({ params, payload }) {
        effects.push(["replace", params, payload])
        if (payload.by === "thief") return yield* new Locked({ by: "", until })
        const found = yield* get(params.number)
        if (found.book.condition === payload.condition) return { unchanged: true as const }
        const replaced = { ...found, book: { ...found.book, condition: payload.condition } }
        books.set(params.number, replaced)
        // The response is sent after the turn in which the request arrived.
        yield* Effect.yieldNow
        return replaced
      }),
      remove: Effect.fnUntraced(function*({ params, query }) {
        effects.push(["remove", params, query])
        yield* get(params.number)
        books.delete(params.number)
      })
    }))
  const languages = Layer.succeed(Languages, (httpEffect) =>
    Effect.gen(function*() {
      const { headers } = yield* HttpServerRequest.HttpServerRequest
      const language = headers["accept-language"] ?? "en"
      effects.push(["language", language])
      if (language === "xx") return yield* new Unreadable({ language })
      const response = yield* Effect.provideService(httpEffect, Language, language)
      return HttpServerResponse.setHeader(response, "content-language", language)
    }))
  return Layer.provideMerge(group, languages)
}

const request = (
  method: string,
  path: string,
  { body, headers = {} }: { readonly body?: string; readonly headers?: Readonly<Record<string, string>> } = {}
): Request =>
(keys) => {
  const sent: Record<string, string> = {
    host: "localhost",
    authorization: `Bearer ${keys[0]}`,
    "x-request-id": "r",
    ...body !== undefined && { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) },
    ...headers
  }
  const lines = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body ?? ""}`
}

/** Draws from `usual` in nine of ten cases, else from `other`. */
const mostly = <A, B>(usual: fc.Arbitrary<A>, other: fc.Arbitrary<B>): fc.Arbitrary<A | B> =>
  fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: other })

const path = fc.stringMatching(/^[\w~%.:;+-]{0,12}$/)
const shelf = mostly(fc.constantFrom("left", "right"), path)
const id = mostly(fc.nat(30).map(String), fc.oneof(path, fc.constantFrom("1e0", "-1", "01", "1.5", " ", "NaN")))
const date = fc.date({ noInvalidDate: true, min: new Date(0), max: new Date(1e13) }).map((value) => value.toISOString())
const text = fc.string({ unit: "grapheme", maxLength: 12 })
const parameters = (record: Record<string, fc.Arbitrary<string>>) =>
  fc.uniqueArray(
    mostly(
      fc.constantFrom(...Object.keys(record)).chain((name) =>
        fc.tuple(fc.constant(name), mostly(record[name] ?? text, text))
      ),
      fc.tuple(text, text)
    ),
    { maxLength: 4, selector: ([name, value]) => `${name}=${value}` }
  ).chain((pairs) =>
    mostly(
      fc.constant(pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&")),
      fc.constantFrom("&", "=", "a", "&&a=1", "titles", "titles=", "most=1&most=2", "__proto__=1", "titles[]=a")
    )
  ).map((query) => query === "" ? "" : `?${query}`)

const content = fc.oneof(
  fc.record({ kind: fc.constant("novel"), pages: fc.integer() }),
  fc.record({ kind: fc.constant("record"), minutes: fc.double({ noNaN: true }), tracks: fc.array(text) })
)
const condition = fc.constantFrom("new", "used", "worn")
const book = fc.record({
  title: mostly(text, fc.constant("locked")),
  author: fc.record({ name: text, born: date }, { requiredKeys: ["name"] }),
  content,
  condition,
  price: fc.option(fc.double({ noNaN: true }))
})
/** Draws a valid JSON body, a body that lacks one field and has an unknown one, or text that may be no JSON. */
const bodyOf = (valid: fc.Arbitrary<object>): fc.Arbitrary<string> =>
  mostly(
    valid,
    fc.tuple(valid, fc.nat(10), fc.option(fc.jsonValue())).map(([value, index, other]) => {
      const entries: Array<[string, unknown]> = Object.entries(value)
      entries.splice(index % entries.length, 1, ["other", other])
      return Object.fromEntries(entries)
    })
  ).chain((value) =>
    mostly(
      fc.constantFrom(JSON.stringify(value), JSON.stringify(value, null, 1)),
      fc.oneof(fc.constant(JSON.stringify(value).slice(1)), fc.json())
    )
  )

const requests: Record<string, fc.Arbitrary<Request>> = {
  list: fc.tuple(
    shelf,
    parameters({ titles: fc.constantFrom("a", "b", "locked"), since: date, most: fc.nat(9).map(String), condition })
  ).map(([name, query]) => request("GET", `/v2/shelves/${encodeURI(name)}/books${query}`)),
  find: fc.tuple(id, fc.constantFrom("en", "fr", "xx", "pl"), fc.option(fc.stringMatching(/^[ -~]{0,9}$/)))
    .map(([key, language, match]) =>
      request("GET", `/v2/books/${encodeURI(key)}`, {
        headers: { "accept-language": language, ...match !== null && { "if-match": match } }
      })
    ),
  add: fc.tuple(shelf, bodyOf(book)).map(([name, body]) =>
    request("POST", `/v2/shelves/${encodeURI(name)}/books`, { body })
  ),
  replace: fc.tuple(
    id,
    bodyOf(fc.record({ condition, by: fc.constantFrom("", "reader", "thief") }, { requiredKeys: ["condition"] }))
  ).map(([key, body]) => request("PUT", `/v2/books/${encodeURI(key)}`, { body })),
  remove: fc.tuple(id, parameters({ reason: text }))
    .map(([key, query]) => request("DELETE", `/v2/books/${encodeURI(key)}${query}`))
}

const each = 10_000

describe("A contract that src/http does not know", () => {
  it.effect(
    `gets the same bytes from the fast path as from HttpApi, for ${each} requests to each of five endpoints`,
    () =>
      Effect.gen(function*() {
        yield* TestClock.setTime(1_763_700_000_000)
        const { fast, reference, taken } = twice(Library)
        const effects: [Array<unknown>, Array<unknown>] = [[], []]
        const all = Object.values(requests).map((arbitrary, index) =>
          fc.sample(arbitrary, { numRuns: each, seed: index })
        )
        const inTurn = Array.from({ length: each }, (_, index) => all.flatMap((one) => one.slice(index, index + 1)))
          .flat()
        const statuses = yield* compare(
          [Layer.provide(fast, handlers(effects[0])), Layer.provide(reference, handlers(effects[1]))],
          [{ plan: "enterprise", limits: { perMinute: 2e9, perDay: 2e9 } }],
          inTurn
        )
        assert.deepStrictEqual(effects[0], effects[1])
        // Each status that the contract can return occurred many times.
        for (const status of [200, 201, 204, 400, 404, 406, 423]) {
          assert.isAbove(statuses[status] ?? 0, 100, `${status}`)
        }
        assert.isAbove(taken.count, each * 2.5)
      }),
    300_000
  )
})
