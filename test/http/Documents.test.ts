/** Tests the documents of the service, which are compressed once and revalidated: /docs, /openapi.json and others. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { openApiDocument } from "../../src/api/OpenApiDocument.ts"
import { acceptsGzip } from "../../src/http/CachedDocument.ts"
import { memory, Service, service } from "../support/Harness.ts"

describe("/docs and /openapi.json", () => {
  const run = Effect.provide(Layer.fresh(service(memory, { CORS_ORIGINS: "https://shop.example" })))

  it.live("are compressed for clients that accept gzip, with the same content as plain ones", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      for (const path of ["/docs", "/openapi.json"]) {
        // `fetch` decompresses the body and keeps the header.
        const compressed = yield* call(path, { headers: { "accept-encoding": "gzip" } })
        const plain = yield* call(path, { headers: { "accept-encoding": "identity", origin: "https://shop.example" } })
        assert.deepStrictEqual([compressed.status, plain.status], [200, 200])
        assert.strictEqual(compressed.headers.get("content-encoding"), "gzip")
        assert.isNull(plain.headers.get("content-encoding"))
        assert.strictEqual(compressed.text, plain.text)
        assert.isBelow(Number(compressed.headers.get("content-length")), plain.text.length / 2)
        // A cache must not mix the two representations, nor responses to different origins.
        assert.strictEqual(compressed.headers.get("vary"), "Accept-Encoding, Origin")
        assert.strictEqual(plain.headers.get("vary"), "Accept-Encoding, Origin")
        const head = yield* call(path, { method: "HEAD", headers: { "accept-encoding": "gzip" } })
        assert.deepStrictEqual([head.status, head.text], [200, ""])
      }
    }).pipe(run))

  it.live("return 304 to a client that has the representation, and 200 to others (RFC 9110 §13.1.2)", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      for (const path of ["/docs", "/openapi.json"]) {
        const get = (encoding: string, ifNoneMatch: string) =>
          call(path, { headers: { "accept-encoding": encoding, "if-none-match": ifNoneMatch } })
        const first = yield* call(path, { headers: { "accept-encoding": "gzip" } })
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
        assert.strictEqual((yield* get("gzip", `"other"`)).status, 200)
        assert.strictEqual((yield* get("identity", etag)).status, 200)
      }
    }).pipe(run))

  it("are compressed only if the weight of gzip is above 0 (RFC 9110 §12.5.3)", () => {
    for (const field of ["gzip", "br, gzip;q=0.5", "*", "GZIP", "x-gzip"]) assert.isTrue(acceptsGzip(field), field)
    for (const field of [undefined, "", "br", "gzip;q=0", "identity, gzip; q=0.0", "*;q=0"]) {
      assert.isFalse(acceptsGzip(field), field)
    }
  })
})

describe("/", () => {
  it.live("has links for programs, and leads a browser to the API reference", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const { text } = yield* call("/")
      assert.deepStrictEqual(JSON.parse(text), {
        name: "Petstore",
        links: { docs: "/docs", openapi: "/openapi.json", pets: "/v1/pets" }
      })
      const page = yield* call("/", { headers: { accept: "text/html,*/*;q=0.8" }, redirect: "manual" })
      assert.deepStrictEqual([page.status, page.headers.get("location")], [302, "/docs"])
      assert.deepStrictEqual(
        JSON.parse((yield* call("/openapi.json")).text),
        JSON.parse(JSON.stringify(openApiDocument))
      )
      for (const method of ["POST", "DELETE"]) assert.strictEqual((yield* call("/", { method })).status, 405)
    }).pipe(Effect.provide(Layer.fresh(service(memory)))))
})
