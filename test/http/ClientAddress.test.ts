/** Tests which address a request is charged to. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Option } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { clientNetwork, makeForwarded } from "../../src/http/ClientAddress.ts"

/** Returns the network that a request from `peer` is charged to, with this `X-Forwarded-For` and `TRUSTED_PROXIES`. */
const clientOf = (trusted: string, peer: string, forwarded?: string) =>
  Effect.gen(function*() {
    const forward = yield* makeForwarded
    const headers = forwarded === undefined ? undefined : { "x-forwarded-for": forwarded }
    const request = HttpServerRequest.fromWeb(new Request("http://localhost/", { ...headers && { headers } }))
      .modify({ remoteAddress: Option.some(peer), peerAddress: Option.some(peer) })
    const network = Effect.map(HttpServerRequest.HttpServerRequest, clientNetwork)
    return yield* Effect.flatMap(network, (text) => Effect.succeed(HttpServerResponse.text(text))).pipe(
      forward,
      Effect.map((response) => response.body._tag === "Uint8Array" ? response.body.text : undefined),
      Effect.provideService(HttpServerRequest.HttpServerRequest, request)
    )
  }).pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ TRUSTED_PROXIES: trusted }))))

describe("The client's address", () => {
  it.effect("is the peer's IPv4 address, or the /64 of the peer's IPv6 address", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* clientOf("", "192.0.2.1"), "192.0.2.1")
      assert.strictEqual(yield* clientOf("", "::ffff:192.0.2.1"), "192.0.2.1")
      assert.strictEqual(yield* clientOf("", "::FFFF:c000:201"), "192.0.2.1")
      const network = yield* clientOf("", "2001:db8:1:2:3:4:5:6")
      assert.strictEqual(yield* clientOf("", "2001:db8:1:2::1"), network)
      assert.strictEqual(yield* clientOf("", "2001:0db8:0001:0002:ffff::"), network)
      assert.notStrictEqual(yield* clientOf("", "2001:db8:1:3::1"), network)
      assert.notStrictEqual(yield* clientOf("", "fe80::1%eth0"), network)
    }))

  it.effect("does not depend on X-Forwarded-For if the peer is no trusted proxy", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* clientOf("", "192.0.2.1", "198.51.100.9"), "192.0.2.1")
      assert.strictEqual(yield* clientOf("10.0.0.1", "192.0.2.1", "10.0.0.1, 198.51.100.9"), "192.0.2.1")
    }))

  it.effect("is the rightmost entry of X-Forwarded-For that is no trusted proxy, if the peer is one", () =>
    Effect.gen(function*() {
      const trusted = "10.0.0.0/8, 2001:db8::/32,192.0.2.7"
      const of = (peer: string, forwarded?: string) => clientOf(trusted, peer, forwarded)
      assert.strictEqual(yield* of("10.1.2.3", "198.51.100.9"), "198.51.100.9")
      assert.strictEqual(yield* of("192.0.2.7", "198.51.100.9, 10.9.9.9"), "198.51.100.9")
      assert.strictEqual(yield* of("2001:db8::1", "203.0.113.1, 198.51.100.9,10.1.1.1 , 192.0.2.7"), "198.51.100.9")
      assert.strictEqual(yield* of("::ffff:10.1.2.3", "1.1.1.1, 198.51.100.9"), "198.51.100.9")
      assert.strictEqual(yield* of("10.1.2.3", "10.0.0.5"), "10.0.0.5")
      assert.strictEqual(yield* of("10.1.2.3", "198.51.100.9:4711, 10.1.1.1:80"), "198.51.100.9")
      assert.strictEqual(yield* of("10.1.2.3", "[2001:db9::1]:4711"), yield* of("10.1.2.3", "2001:db9::1"))
      for (const forwarded of [undefined, "", "unknown", "198.51.100.9, nonsense", "198.51.100.9:x", ",,"]) {
        assert.strictEqual(yield* of("10.1.2.3", forwarded), "10.1.2.3")
      }
    }))

  it.effect("cannot be determined if TRUSTED_PROXIES has an invalid entry, which the error names", () =>
    Effect.gen(function*() {
      for (const entry of ["localhost", "10.0.0.0/33", "10.0.0", "1.2.3.4/"]) {
        const error = yield* Effect.flip(clientOf(`10.0.0.1,${entry}`, "192.0.2.1"))
        assert.include(error.message, entry)
      }
    }))
})
