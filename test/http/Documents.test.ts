/** Tests /docs and /openapi.json, which are compressed once and revalidated. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { readFileSync } from "node:fs"
import { memory, Service, service } from "../support/Harness.ts"

const documents = ["/docs", "/openapi.json"]

describe("The documents", () => {
  layer(Layer.fresh(service(memory, { CORS_ORIGINS: "https://shop.example" })), { excludeTestServices: true })((it) => {
    it.effect.each(documents)(
      "%s is compressed for clients that accept gzip, with the same content as plain",
      (path) =>
        Effect.gen(function*() {
          const { call } = yield* Service
          // `fetch` decompresses the body and keeps the header.
          const compressed = yield* call(path, { headers: { "accept-encoding": "gzip" } })
          const plain = yield* call(path, {
            headers: { "accept-encoding": "identity", origin: "https://shop.example" }
          })
          assert.deepStrictEqual([compressed.status, plain.status], [200, 200])
          assert.strictEqual(compressed.headers.get("content-encoding"), "gzip")
          assert.isNull(plain.headers.get("content-encoding"))
          assert.strictEqual(compressed.text, plain.text)
          // A cache must not mix the two representations, nor responses to different origins.
          for (const { headers } of [compressed, plain]) {
            assert.strictEqual(headers.get("vary"), "Accept-Encoding, Origin")
          }
          assert.isNull(
            (yield* call(path, { headers: { "accept-encoding": "gzip;q=0" } })).headers.get("content-encoding")
          )
          const head = yield* call(path, { method: "HEAD", headers: { "accept-encoding": "gzip" } })
          assert.deepStrictEqual([head.status, head.text], [200, ""])
        })
    )

    it.effect.each(documents)(
      "%s returns 304 to a client that has the representation (RFC 9110 §13.1.2)",
      (path) =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const get = (encoding: string, ifNoneMatch: string) =>
            call(path, { headers: { "accept-encoding": encoding, "if-none-match": ifNoneMatch } })
          const first = yield* get("gzip", `"other"`)
          assert.strictEqual(first.status, 200)
          const etag = first.headers.get("etag") ?? ""
          assert.match(etag, /^"[\w-]{22}"$/)
          assert.strictEqual(first.headers.get("cache-control"), "private, no-cache")
          for (const ifNoneMatch of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
            const unchanged = yield* get("gzip", ifNoneMatch)
            assert.deepStrictEqual([unchanged.status, unchanged.text], [304, ""], ifNoneMatch)
            for (const name of ["etag", "cache-control", "content-security-policy"]) {
              assert.strictEqual(unchanged.headers.get(name), first.headers.get(name), name)
            }
          }
          assert.strictEqual((yield* get("identity", etag)).status, 200)
        })
    )

    it.effect("/openapi.json is the document of docs/api", () =>
      Effect.gen(function*() {
        const { text } = yield* Effect.flatMap(Service, ({ call }) => call("/openapi.json"))
        assert.deepStrictEqual(JSON.parse(text), JSON.parse(readFileSync("docs/api/openapi.json", "utf8")))
      }))
  })
})
