import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Certificates from "../support/Certificates.ts"
import { until } from "../support/Process.ts"
import * as RedisServer from "../support/Redis.ts"
import { freePort } from "../support/Temporary.ts"
import * as Limiters from "./Limiters.ts"

const skip = !RedisServer.isInstalled || !Certificates.isInstalled || !RedisServer.hasTls

const assertUp = (url: string) =>
  Effect.scoped(Effect.flatMap(Limiters.make(url), (limiter) => Limiters.untilAll("shared", [limiter])))

const assertDown = (url: string, reason = /REDIS_URL: Redis cannot be used/) =>
  Effect.scoped(Effect.gen(function*() {
    const limiter = yield* Limiters.make(url)
    yield* until(() => limiter.log.length > 0)
    assert.strictEqual(yield* limiter.counting, "fallback")
    assert.match(limiter.log[0] ?? "", reason)
  }))

/** An authority, the TLS of servers that it certified, and the parameters of a client that it certified. */
const setUp = Effect.map(Certificates.makeAuthority, (authority) => {
  const serverTls = (altNames: string, isExpired = false) => ({
    certificate: authority.issue("redis", { altNames, isExpired }),
    clientAuthority: authority
  })
  const { cert, key } = authority.issue("client", { password: "a b" })
  const own = `ssl_certfile=${cert}&ssl_keyfile=${key}&ssl_password=a%20b`
  return { own, query: `ssl_ca_certs=${authority.cert}&${own}`, authority, serverTls }
})

describe.skipIf(skip)("A connection to Redis with TLS", () => {
  it.live("requires the right CA, the right host name, and the client certificate that the server asks for", () =>
    Effect.gen(function*() {
      const { authority, own, query, serverTls } = yield* setUp
      const other = yield* Certificates.makeAuthority
      const serve = (altNames: string, isExpired?: boolean) =>
        RedisServer.runStarted({ tls: serverTls(altNames, isExpired) })
      const { url } = yield* serve("IP:127.0.0.1")
      yield* assertUp(`${url}?${query}`)
      yield* assertDown(`${url}?ssl_ca_certs=${authority.cert}`)
      yield* assertDown(`${url}?${own}`, /unable to verify|self-signed/)
      yield* assertDown(`${url}?ssl_ca_certs=${other.cert}&${own}`, /unable to verify|self-signed/)
      yield* assertDown(`${(yield* serve("DNS:elsewhere.example")).url}?${query}`, /does not match/)
      yield* assertDown(`${(yield* serve("IP:127.0.0.1", true)).url}?${query}`, /expired/)
    }))

  it.live("is used for the nodes of a cluster, for sentinels, and for the master that they name", () =>
    Effect.gen(function*() {
      const { query, serverTls } = yield* setUp
      const tls = serverTls("IP:127.0.0.1")
      const [port, busPort] = [yield* freePort, yield* freePort]
      const self = `${"a".repeat(40)} 127.0.0.1:${port}@${busPort} myself,master - 0 0 1 connected 0-16383`
      const files = { "nodes.conf": `${self}\nvars currentEpoch 1 lastVoteEpoch 0\n` }
      const args = ["--cluster-enabled", "yes", "--cluster-port", String(busPort), "--tls-cluster", "yes"]
      yield* RedisServer.runStarted({ tls, port, files, arguments: args })
      yield* assertUp(`rediss+cluster://127.0.0.1:${port}?${query}`)
      yield* assertDown(`redis+cluster://127.0.0.1:${port}`)

      const master = yield* RedisServer.runStarted({ tls })
      const config = `tls-replication yes\nsentinel monitor pets 127.0.0.1 ${master.port} 1`
      const sentinel = yield* RedisServer.startSentinel(config, tls)
      yield* assertUp(`rediss+sentinel://127.0.0.1:${sentinel}/pets?${query}`)
      yield* assertDown(`rediss+sentinel://127.0.0.1:${sentinel}/dogs?${query}`)
      yield* assertDown(`redis+sentinel://127.0.0.1:${sentinel}/pets`)
    }))
})
