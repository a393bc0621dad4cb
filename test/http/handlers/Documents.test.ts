/** Tests the representations of /docs and /openapi.json: plain and compressed. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { acceptsGzip } from "../../../src/http/handlers/Documents.ts"
import { memory, Service, service } from "../../support/Harness.ts"

describe("/docs and /openapi.json", () => {
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
    }).pipe(Effect.provide(Layer.fresh(service(memory, { CORS_ORIGINS: "https://shop.example" })))))

  it("are compressed only if the weight of gzip is above 0 (RFC 9110 §12.5.3)", () => {
    for (const field of ["gzip", "br, gzip;q=0.5", "*", "GZIP", "x-gzip"]) assert.isTrue(acceptsGzip(field), field)
    for (const field of [undefined, "", "br", "gzip;q=0", "identity, gzip; q=0.0", "*;q=0"]) {
      assert.isFalse(acceptsGzip(field), field)
    }
  })
})
