/** Tests /docs and /openapi.json, which are compressed once and revalidated. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const documents = ["/docs", "/openapi.json"]

describe("The documents", () => {
  layer(service(memory, { CORS_ORIGINS: "https://shop.example" }), { excludeTestServices: true })((it) => {
    const get = (path: string, encoding: string, headers: object = {}, method = "GET") =>
      Effect.flatMap(
        Service,
        ({ call }) => call(path, { method, headers: { "accept-encoding": encoding, ...headers } })
      )

    it.effect.each(documents)(
      "%s is compressed for clients that accept gzip, with the same content as plain",
      (path) =>
        Effect.gen(function*() {
          // `fetch` decompresses the body and keeps the header.
          const compressed = yield* get(path, "gzip")
          const plain = yield* get(path, "identity", { origin: "https://shop.example" })
          const unwanted = yield* get(path, "gzip;q=0")
          const all = [compressed, plain, unwanted]
          assert.deepStrictEqual(all.map(({ status }) => status), [200, 200, 200])
          assert.deepStrictEqual(all.map(({ headers }) => headers.get("content-encoding")), ["gzip", null, null])
          assert.strictEqual(compressed.text, plain.text)
          if (path === "/openapi.json") assert.strictEqual(plain.text, JSON.stringify(OpenApi.fromApi(PetstoreApi)))
          // A cache must not mix the two representations, nor responses to different origins.
          for (const { headers } of all) assert.strictEqual(headers.get("vary"), "Accept-Encoding, Origin")
          const head = yield* get(path, "gzip", {}, "HEAD")
          assert.deepStrictEqual([head.status, head.text], [200, ""])
        })
    )

    it.effect.each(documents)(
      "%s returns 304 to a client that has the representation (RFC 9110 §13.1.2)",
      (path) =>
        Effect.gen(function*() {
          const first = yield* get(path, "gzip", { "if-none-match": `"other"` })
          assert.strictEqual(first.status, 200)
          const etag = first.headers.get("etag") ?? ""
          assert.match(etag, /^"[\w-]{22}"$/)
          assert.strictEqual(first.headers.get("cache-control"), "private, no-cache")
          const remaining = ({ headers }: typeof first) => Number(headers.get("x-ratelimit-remaining"))
          let left = remaining(first)
          for (const ifNoneMatch of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
            const unchanged = yield* get(path, "gzip", { "if-none-match": ifNoneMatch })
            assert.deepStrictEqual([unchanged.status, unchanged.text], [304, ""], ifNoneMatch)
            assert.strictEqual(remaining(unchanged), --left, "a 304 is charged")
            for (const name of ["etag", "cache-control", "content-security-policy"]) {
              assert.strictEqual(unchanged.headers.get(name), first.headers.get(name), name)
            }
          }
          assert.strictEqual((yield* get(path, "identity", { "if-none-match": etag })).status, 200)
        })
    )
  })
})
