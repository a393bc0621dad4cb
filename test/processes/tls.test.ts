/** Tests a service whose PostgreSQL and Redis take only connections with TLS and a client certificate. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Limiters from "../rate-limit/Limiters.ts"
import * as Certificates from "../support/Certificates.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"
import * as Postgres from "../support/Postgres.ts"
import { start } from "../support/Process.ts"
import * as RedisServer from "../support/Redis.ts"

const missing = Postgres.missing ?? RedisServer.missing ?? Certificates.missing ??
  (RedisServer.hasTls ? undefined : "the redis-server has no TLS")

describe.skipIf(missing !== undefined)("A service with TLS", () => {
  it.live("connects to PostgreSQL and Redis with a client certificate for each", () =>
    Effect.gen(function*() {
      const authority = yield* Certificates.makeAuthority
      const certificate = authority.issue("localhost", { altNames: "DNS:localhost,IP:127.0.0.1" })
      const client = authority.issue("postgres")
      const postgres = yield* Postgres.runWithTls({ certificate, clientAuthority: authority })
      const redis = yield* RedisServer.runWithTls({ certificate, clientAuthority: authority })
      yield* redis.start
      const service = yield* start({
        DATABASE_URL: `postgres://postgres@localhost:${postgres.port}/postgres?sslmode=verify-full` +
          `&sslrootcert=${authority.cert}&sslcert=${client.cert}&sslkey=${client.key}`,
        REDIS_URL: `rediss://localhost:${redis.port}?ssl_ca_certs=${authority.cert}` +
          `&ssl_certfile=${client.cert}&ssl_keyfile=${client.key}`,
        DATA_DIR: yield* temporaryDirectory,
        LOG_LEVEL: "info"
      })
      const ready = Effect.promise(async () => (await fetch(`${service.management}/readyz`)).text())
      yield* Limiters.until(Effect.map(ready, (text) => text.includes(`"limits":"shared"`)))
      const rows = yield* postgres.admin((sql) =>
        sql<{ ssl: boolean }>`SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
          WHERE application_name = 'petstore'`
      )
      assert.deepStrictEqual(rows, [{ ssl: true }])
    }), 60_000)

  it.live(
    "does not start with a file that is missing, and reports each setting in one line",
    () =>
      Effect.gen(function*() {
        const exited = yield* Effect.flip(start({
          DATABASE_URL: "postgres://u:hush@localhost/d?sslmode=verify-full&sslrootcert=/none/ca.crt",
          REDIS_URL: "rediss://:hush@localhost?ssl_ca_certs=/none/redis.crt"
        }))
        assert.strictEqual(exited.code, 1)
        assert.deepStrictEqual(exited.stderr.trim().split("\n"), [
          "DATABASE_URL: expected postgres://user:password@host/database with a usable file in sslrootcert, " +
          "not /none/ca.crt (ENOENT: no such file or directory, open '/none/ca.crt')",
          "REDIS_URL: expected redis://host:port, redis+sentinel://host:port/name or redis+cluster://host:port " +
          "with a usable file in ssl_ca_certs, not /none/redis.crt (ENOENT: no such file or directory, open '/none/redis.crt')"
        ])
      }),
    60_000
  )
})

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
