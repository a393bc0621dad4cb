/** Tests TLS to Redis: to one server, a cluster and sentinels, which take only connections with a client certificate. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Certificates from "../support/Certificates.ts"
import { freePort } from "../support/Harness.ts"
import * as RedisServer from "../support/Redis.ts"
import * as Limiters from "./Limiters.ts"

const missing = RedisServer.missing ?? Certificates.missing ??
  (RedisServer.hasTls ? undefined : "the redis-server has no TLS")

describe.skipIf(missing !== undefined)("A connection to Redis with TLS", () => {
  const untilUp = (url: string) =>
    Effect.scoped(Effect.flatMap(Limiters.make(url), (limiter) => Limiters.untilAll("shared", [limiter])))
  /** Asserts that a limiter does not connect, and logs the reason. */
  const assertDown = (url: string, reason: RegExp) =>
    Effect.scoped(Effect.gen(function*() {
      const limiter = yield* Limiters.make(url)
      yield* Limiters.until(Effect.sync(() => limiter.log.length > 0))
      assert.strictEqual(yield* limiter.counting, "fallback")
      assert.match(limiter.log[0] ?? "", reason)
    }))

  it.live(
    "needs the right authority, the right name, and the client certificate that the server requires",
    () =>
      Effect.gen(function*() {
        const authority = yield* Certificates.makeAuthority
        const other = yield* Certificates.makeAuthority
        const serve = (altNames: string, isExpired = false) =>
          Effect.tap(
            RedisServer.runWithTls({
              certificate: authority.issue("redis", { altNames, isExpired }),
              clientAuthority: authority
            }),
            ({ start: startRedis }) => startRedis
          )
        const { cert, key } = authority.issue("client", { password: "a b" })
        const own = `ssl_certfile=${cert}&ssl_keyfile=${key}&ssl_password=a%20b`
        const { url } = yield* serve("IP:127.0.0.1")
        yield* untilUp(`${url}?ssl_ca_certs=${authority.cert}&${own}`)
        yield* assertDown(`${url}?ssl_ca_certs=${authority.cert}`, /REDIS_URL: Redis cannot be used/)
        yield* assertDown(`${url}?${own}`, /unable to verify|self-signed/)
        yield* assertDown(`${url}?ssl_ca_certs=${other.cert}&${own}`, /unable to verify|self-signed/)
        const misnamed = yield* serve("DNS:elsewhere.example")
        yield* assertDown(`${misnamed.url}?ssl_ca_certs=${authority.cert}&${own}`, /does not match/)
        const expired = yield* serve("IP:127.0.0.1", true)
        yield* assertDown(`${expired.url}?ssl_ca_certs=${authority.cert}&${own}`, /expired/)
      }),
    60_000
  )

  const serveAll = Effect.gen(function*() {
    const authority = yield* Certificates.makeAuthority
    const tls = { certificate: authority.issue("redis", { altNames: "IP:127.0.0.1" }), clientAuthority: authority }
    const { cert, key } = authority.issue("client")
    return { tls, query: `ssl_ca_certs=${authority.cert}&ssl_certfile=${cert}&ssl_keyfile=${key}` }
  })

  it.live("is used for the nodes of a cluster", () =>
    Effect.gen(function*() {
      const { query, tls } = yield* serveAll
      const [port, busPort] = [yield* freePort, yield* freePort]
      const node = yield* RedisServer.runWith({
        tls,
        port,
        files: {
          "nodes.conf": `${"a".repeat(40)} 127.0.0.1:${port}@${busPort} myself,master - 0 0 1 connected 0-16383\n` +
            "vars currentEpoch 1 lastVoteEpoch 0\n"
        },
        arguments: ["--cluster-enabled", "yes", "--cluster-port", String(busPort), "--tls-cluster", "yes"]
      })
      yield* node.start
      yield* untilUp(`rediss+cluster://127.0.0.1:${port}?${query}`)
      yield* assertDown(`redis+cluster://127.0.0.1:${port}`, /REDIS_URL: Redis cannot be used/)
    }), 60_000)

  it.live("is used for sentinels and for the master that they name", () =>
    Effect.gen(function*() {
      const { query, tls } = yield* serveAll
      const master = yield* RedisServer.runWithTls(tls)
      yield* master.start
      const port = yield* freePort
      const settings = [...RedisServer.tlsArguments(port, tls), "--tls-replication", "yes"]
      const lines = settings.flatMap((name, index) =>
        index % 2 === 0 ? [`${name.slice(2)} ${settings[index + 1]}`] : []
      )
      const sentinel = yield* RedisServer.runWith({
        port,
        isSentinel: true,
        files: { "sentinel.conf": [...lines, `sentinel monitor pets 127.0.0.1 ${master.port} 1`].join("\n") },
        arguments: ["sentinel.conf", "--sentinel"]
      })
      yield* sentinel.start
      yield* untilUp(`rediss+sentinel://127.0.0.1:${port}/pets?${query}`)
      yield* assertDown(`rediss+sentinel://127.0.0.1:${port}/dogs?${query}`, /REDIS_URL: Redis cannot be used/)
      yield* assertDown(`redis+sentinel://127.0.0.1:${port}/pets`, /REDIS_URL: Redis cannot be used/)
    }), 60_000)
})
