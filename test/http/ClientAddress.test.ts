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
    const { body } = yield* forward(Effect.map(network, (text) => HttpServerResponse.text(text))).pipe(
      Effect.provideService(HttpServerRequest.HttpServerRequest, request)
    )
    return body._tag === "Uint8Array" ? body.text : undefined
  }).pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ TRUSTED_PROXIES: trusted }))))

const trusted = "10.0.0.0/8, 2001:db8::/32,192.0.2.7"

/** The peer, its `X-Forwarded-For`, and the address that the request is charged to. */
const clients: ReadonlyArray<readonly [peer: string, forwarded: string | undefined, client: string]> = [
  ["203.0.113.1", undefined, "203.0.113.1"],
  ["::ffff:203.0.113.1", undefined, "203.0.113.1"],
  ["::FFFF:cb00:7101", undefined, "203.0.113.1"],
  ["203.0.113.1", "198.51.100.9", "203.0.113.1"],
  ["203.0.113.1", "10.0.0.1, 198.51.100.9", "203.0.113.1"],
  ["10.1.2.3", "198.51.100.9", "198.51.100.9"],
  ["192.0.2.7", "198.51.100.9, 10.9.9.9", "198.51.100.9"],
  ["2001:db8::1", "203.0.113.1, 198.51.100.9,10.1.1.1 , 192.0.2.7", "198.51.100.9"],
  ["::ffff:10.1.2.3", "1.1.1.1, 198.51.100.9", "198.51.100.9"],
  ["10.1.2.3", "10.0.0.5", "10.0.0.5"],
  ["10.1.2.3", "198.51.100.9:4711, 10.1.1.1:80", "198.51.100.9"],
  ...[undefined, "", "unknown", "198.51.100.9, nonsense", "198.51.100.9:x", ",,"]
    .map((invalid) => ["10.1.2.3", invalid, "10.1.2.3"] as const)
]

describe("The client's address", () => {
  it.effect("is the peer, or the rightmost entry of X-Forwarded-For that is no trusted proxy if the peer is one", () =>
    Effect.gen(function*() {
      for (const [peer, forwarded, client] of clients) {
        assert.strictEqual(yield* clientOf(trusted, peer, forwarded), client, `${peer} ${forwarded}`)
      }
    }))

  it.effect("is the /64 of an IPv6 address", () =>
    Effect.gen(function*() {
      const network = yield* clientOf("", "2001:db8:1:2:3:4:5:6")
      for (const same of ["2001:db8:1:2::1", "2001:0db8:0001:0002:ffff::"]) {
        assert.strictEqual(yield* clientOf("", same), network)
      }
      assert.strictEqual(yield* clientOf("10.1.2.3", "10.1.2.3", "[2001:db8:1:2::1]:4711"), network)
      for (const other of ["2001:db8:1:3::1", "fe80::1%eth0"]) {
        assert.notStrictEqual(yield* clientOf("", other), network)
      }
    }))
})
