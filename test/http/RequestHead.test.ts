import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Option } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { trustedProxies } from "../../src/config/SettingForms.ts"
import { applyForwardedFor, clientNetwork, peerNetwork } from "../../src/http/RequestHead.ts"

const env = { TRUSTED_PROXIES: "10.0.0.0/8, 2001:db8::/32,192.0.2.7" }

it.effect.each<readonly [peer: string, forwarded: string | undefined, network: string]>([
  ["203.0.113.1", undefined, "203.0.113.1"],
  ["::ffff:203.0.113.1", undefined, "203.0.113.1"],
  ["::FFFF:cb00:7101", undefined, "203.0.113.1"],
  ["2001:db9:1:2:3:4:5:6", undefined, "2001:db9:1:2::/64"],
  ["2001:0db9:0001:0002:ffff::", undefined, "2001:db9:1:2::/64"],
  ["fe80::1%eth0", undefined, "fe80:0:0:0::/64"],
  ["203.0.113.1", "198.51.100.9", "203.0.113.1"],
  ["203.0.113.1", "10.0.0.1, 198.51.100.9", "203.0.113.1"],
  ["10.1.2.3", "198.51.100.9", "198.51.100.9"],
  ["10.1.2.3", "[2001:db9:1:2::1]:4711", "2001:db9:1:2::/64"],
  ["192.0.2.7", "198.51.100.9, 10.9.9.9", "198.51.100.9"],
  ["2001:db8::1", "203.0.113.1, 198.51.100.9,10.1.1.1 , 192.0.2.7", "198.51.100.9"],
  ["::ffff:10.1.2.3", "1.1.1.1, 198.51.100.9", "198.51.100.9"],
  ["10.1.2.3", "10.0.0.5", "10.0.0.5"],
  ["10.1.2.3", "198.51.100.9:4711, 10.1.1.1:80", "198.51.100.9"],
  ...[undefined, "", "unknown", "198.51.100.9, nonsense", "198.51.100.9:x", ",,"]
    .map((invalid) => ["10.1.2.3", invalid, "10.1.2.3"] as const)
])(
  "A request from %s with X-Forwarded-For %s is charged to %s",
  ([peer, forwarded, network]) =>
    Effect.gen(function*() {
      const forward = applyForwardedFor(yield* trustedProxies.config)
      const headers = new Headers(forwarded === undefined ? {} : { "x-forwarded-for": forwarded })
      const request = HttpServerRequest.fromWeb(new Request("http://localhost/", { headers }))
        .modify({ remoteAddress: Option.some(peer), peerAddress: Option.some(peer) })
      const charged = Effect.map(HttpServerRequest.HttpServerRequest, clientNetwork)
      const { body } = yield* forward(Effect.map(charged, (text) => HttpServerResponse.text(text))).pipe(
        Effect.provideService(HttpServerRequest.HttpServerRequest, request)
      )
      assert.strictEqual(body._tag === "Uint8Array" ? body.text : undefined, network)
      // The connections of a client without a proxy count for the same network.
      if (forwarded === undefined) assert.strictEqual(peerNetwork([], peer), network)
    }).pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(env))))
)
