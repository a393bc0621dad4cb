import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { assertErrorBody } from "../support/Assertions.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const pages = service(memory, { CORS_ORIGINS: "https://shop.example" })

layer(pages, { excludeTestServices: true })("The documents", (it) => {
  it.effect.each(["/docs", "/openapi.json"])(
    "%s is compressed, 304 if known, and cannot be embedded",
    (path) =>
      Effect.gen(function*() {
        const { call } = yield* Service
        const get = (encoding: string, headers: object = {}, method = "GET") =>
          call(path, { method, headers: { "accept-encoding": encoding, ...headers } })
        // `fetch` decompresses the body and keeps the header.
        const compressed = yield* get("gzip", { "if-none-match": `"other"` })
        const plain = yield* get("identity", { origin: "https://shop.example" })
        const all = [compressed, plain, yield* get("gzip;q=0, *")]
        assert.deepStrictEqual(all.map(({ status }) => status), [200, 200, 200])
        assert.deepStrictEqual(all.map(({ headers }) => headers.get("content-encoding")), ["gzip", null, null])
        assert.strictEqual(compressed.text, plain.text)
        if (path === "/openapi.json") assert.strictEqual(plain.text, JSON.stringify(OpenApi.fromApi(PetstoreApi)))
        // A cache must not mix the two representations, nor responses to different origins.
        for (const { headers } of all) assert.strictEqual(headers.get("vary"), "Accept-Encoding, Origin")
        // No page may embed a document, and /docs may connect only to the service.
        const own = ["connect-src 'self'", "form-action 'none'", "script-src 'unsafe-inline'"]
        const directives = compressed.headers.get("content-security-policy")?.split("; ") ?? []
        const common = ["default-src 'none'", "frame-ancestors 'none'"]
        if (path === "/docs") assert.includeMembers(directives, [...common, ...own])
        // Only /docs may run scripts.
        else assert.deepStrictEqual(directives, common)
        const head = yield* get("gzip", {}, "HEAD")
        assert.deepStrictEqual([head.status, head.text], [200, ""])

        const etag = compressed.headers.get("etag") ?? ""
        assert.match(etag, /^"[\w-]{22}"$/)
        assert.strictEqual(compressed.headers.get("cache-control"), "private, no-cache")
        let left = Number(head.headers.get("x-ratelimit-remaining"))
        for (const ifNoneMatch of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
          const unchanged = yield* get("gzip", { "if-none-match": ifNoneMatch })
          assert.deepStrictEqual([unchanged.status, unchanged.text], [304, ""], ifNoneMatch)
          assert.strictEqual(Number(unchanged.headers.get("x-ratelimit-remaining")), --left, "a 304 is charged")
          for (const name of ["etag", "cache-control", "content-security-policy"]) {
            assert.strictEqual(unchanged.headers.get(name), compressed.headers.get(name), name)
          }
        }
        assert.strictEqual((yield* get("identity", { "if-none-match": etag })).status, 200)
        for (const [ifMatch, status] of [[etag, 200], [`"a", ${etag}`, 200], ["*", 200], [`W/${etag}`, 412]] as const) {
          assert.strictEqual((yield* get("gzip", { "if-match": ifMatch })).status, status, ifMatch)
        }
        const before = yield* get("identity")
        const changed = yield* get("identity", { "if-match": etag, "if-none-match": "*" })
        assertErrorBody(changed, 412, "precondition_failed", "does not match If-Match")
        const lefts = [before, changed].map(({ headers }) => Number(headers.get("x-ratelimit-remaining")))
        assert.strictEqual((lefts[0] ?? 0) - (lefts[1] ?? 0), 1, "a 412 is charged")
      })
  )
  it.effect("/ redirects a browser to /docs, and gives a program the links", () =>
    Effect.gen(function*() {
      const { call } = yield* Service
      const ofBrowser = yield* call("/", { redirect: "manual", headers: { accept: "text/html,*/*" } })
      assert.deepStrictEqual([ofBrowser.status, ofBrowser.headers.get("location")], [302, "/docs"])
      const { status, text } = yield* call("/")
      const links = { docs: "/docs", openapi: "/openapi.json", pets: "/v1/pets" }
      assert.deepStrictEqual([status, JSON.parse(text)], [200, { name: "Petstore", links }])
      // A cache must not mix the two, nor responses to different origins.
      assert.strictEqual(ofBrowser.headers.get("vary"), "Accept, Origin")
    }))
})
