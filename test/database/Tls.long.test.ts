/** Tests TLS to a PostgreSQL server: the modes of libpq, with authorities of its own. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Result } from "effect"
import * as ConnectionString from "../../src/config/ConnectionString.ts"
import * as PostgresSocket from "../../src/database/PostgresSocket.ts"
import { describe as describeCause } from "../../src/observability/Logging.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Proxy from "../support/Proxy.ts"

const missing = Postgres.missing ?? Certificates.missing

const makeServers = Effect.gen(function*() {
  const authority = yield* Certificates.makeAuthority
  const other = yield* Certificates.makeAuthority
  const certificate = authority.issue("localhost", { altNames: "IP:127.0.0.1" })
  const access = [
    "hostnossl all certified all reject",
    "hostssl all certified all trust clientcert=verify-full",
    "hostssl all scrambled all scram-sha-256"
  ]
  const [server, misnamed, expired, plain] = yield* Effect.all([
    Postgres.runWithTls({ certificate, clientAuthority: authority, access }),
    Postgres.runWithTls({ certificate: authority.issue("elsewhere", { altNames: "DNS:elsewhere.example" }) }),
    Postgres.runWithTls({ certificate: authority.issue("localhost", { altNames: "IP:127.0.0.1", isExpired: true }) }),
    Postgres.run()
  ], { concurrency: 2 })
  yield* server.admin((sql) =>
    Effect.andThen(sql`CREATE ROLE certified LOGIN`, sql`CREATE ROLE scrambled LOGIN PASSWORD 'hush'`)
  )
  return { authority, other, server, misnamed, expired, plain }
})

class Servers extends Context.Service<Servers, Effect.Success<typeof makeServers>>()("test/Servers") {
  static readonly layer = Layer.effect(Servers, makeServers)
}

const connect = (url: string) =>
  Effect.gen(function*() {
    const target = yield* Effect.fromResult(ConnectionString.parse(url))
    const { database, password, servers: [server], username } = target
    const { host, port } = server
    const stream = () => PostgresSocket.openWatched(server)
    return PgClient.layer({
      database,
      host,
      password,
      port,
      stream,
      username,
      maxConnections: 1,
      multiplex: true,
      multiplexConcurrency: 1
    })
  })

const isEncrypted = Effect.gen(function*() {
  const sql = yield* PgClient.PgClient
  const [row] = yield* sql<{ ssl: boolean }>`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
  return row?.ssl
})

/** Connects to `url`. Returns whether the connection is encrypted, or describes the error. */
const outcome = (url: string) =>
  Effect.gen(function*() {
    const exit = yield* Effect.exit(Effect.provide(isEncrypted, yield* connect(url)))
    return Exit.isSuccess(exit) ? exit.value : describeCause(exit.cause)
  })

const url = ({ port }: { readonly port: number }, parameters: Readonly<Record<string, string>>, user = "postgres") =>
  `postgres://${user}@127.0.0.1:${port}/postgres?` +
  Object.entries(parameters).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")

describe.skipIf(missing !== undefined)("A connection to PostgreSQL", () => {
  layer(Servers.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    it.effect("is encrypted if the server has TLS, unless sslmode is disable", () =>
      Effect.gen(function*() {
        const { plain, server } = yield* Servers
        assert.isTrue(yield* outcome(url(server, {})))
        assert.isTrue(yield* outcome(url(server, { sslmode: "prefer" })))
        assert.isTrue(yield* outcome(url(server, { sslmode: "require" })))
        assert.isTrue(yield* outcome(url(server, { ssl: "true" })))
        assert.isFalse(yield* outcome(url(server, { sslmode: "disable" })))
        assert.isFalse(yield* outcome(url(plain, {})))
        assert.isTrue(yield* outcome(url(server, { channel_binding: "prefer" }, "scrambled:hush")))
      }))

    it.effect("fails with sslmode=require at a server without TLS, and says what to do", () =>
      Effect.gen(function*() {
        const { plain } = yield* Servers
        assert.include(
          yield* outcome(url(plain, { sslmode: "require" })),
          "The server has no TLS, which sslmode in DATABASE_URL requires. Turn on its setting ssl."
        )
      }))

    it.effect("verifies the authority in every mode with sslrootcert, and in no other", () =>
      Effect.gen(function*() {
        const { authority, expired, other, server } = yield* Servers
        for (const sslmode of ["prefer", "require", "verify-ca", "verify-full"]) {
          assert.isTrue(yield* outcome(url(server, { sslmode, sslrootcert: authority.cert })), sslmode)
          assert.match(
            String(yield* outcome(url(server, { sslmode, sslrootcert: other.cert }))),
            /unable to verify the first certificate|self-signed|signature/,
            sslmode
          )
          assert.include(
            yield* outcome(url(expired, { sslmode, sslrootcert: authority.cert })),
            "certificate has expired",
            sslmode
          )
        }
        assert.isTrue(yield* outcome(url(expired, { sslmode: "require" })))
        assert.isString(yield* outcome(url(server, { sslrootcert: "system" })))
      }))

    it.effect("compares the host with the certificate only with sslmode=verify-full", () =>
      Effect.gen(function*() {
        const { authority, misnamed } = yield* Servers
        const sslrootcert = authority.cert
        assert.isTrue(yield* outcome(url(misnamed, { sslmode: "verify-ca", sslrootcert })))
        assert.include(
          yield* outcome(url(misnamed, { sslmode: "verify-full", sslrootcert })),
          "does not match certificate's altnames"
        )
      }))

    it.effect("presents sslcert to a server that requires a client certificate", () =>
      Effect.gen(function*() {
        const { authority, other, server } = yield* Servers
        const { cert, key } = authority.issue("certified")
        const encrypted = authority.issue("certified", { password: "s=&3" })
        const foreign = other.issue("certified")
        const as = (parameters: Readonly<Record<string, string>>) =>
          outcome(url(server, { sslmode: "require", ...parameters }, "certified"))
        assert.isTrue(yield* as({ sslcert: cert, sslkey: key }))
        assert.isTrue(yield* as({ sslcert: encrypted.cert, sslkey: encrypted.key, sslpassword: "s=&3" }))
        assert.include(yield* as({}), "connection requires a valid client certificate")
        assert.match(String(yield* as({ sslcert: foreign.cert, sslkey: foreign.key })), /unknown ca/)
      }))

    it.effect("uses a Unix socket for a host that is a directory, without TLS in any mode", () =>
      Effect.gen(function*() {
        const { server } = yield* Servers
        const { port, socketDirectory } = server
        const encoded = encodeURIComponent(socketDirectory)
        assert.isFalse(yield* outcome(`postgres://postgres@/postgres?host=${encoded}&port=${port}&sslmode=require`))
        assert.isFalse(yield* outcome(`postgres://postgres@${encoded}:${port}/postgres`))
      }))

    it.effect.each(["disable", "prefer", "verify-full"])(
      "is replaced within 5 seconds of silence, with sslmode=%s",
      (sslmode) =>
        Effect.gen(function*() {
          const { authority, server } = yield* Servers
          const proxy = yield* Proxy.run(server.port)
          const client = yield* connect(url(proxy, { sslmode, sslrootcert: authority.cert }))
          yield* Effect.gen(function*() {
            const sql = yield* PgClient.PgClient
            assert.strictEqual(yield* isEncrypted, sslmode !== "disable")
            proxy.silence()
            const start = performance.now()
            // The statement is sent just after a reply.
            assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
            yield* sql`SELECT 1`
            assert.isBelow(performance.now() - start, 5_000)
            // An idle connection is kept.
            const before = yield* sql`SELECT pg_backend_pid() AS pid`
            yield* Effect.sleep("6 seconds")
            assert.deepStrictEqual(yield* sql`SELECT pg_backend_pid() AS pid`, before)
          }).pipe(Effect.provide(client))
        }),
      30_000
    )
  })
})

describe.skipIf(missing !== undefined)("A connection string", () => {
  const problem = (parameters: string) => Result.getFailure(ConnectionString.parse(`postgres://u:pw@h/d?${parameters}`))

  it.effect("is invalid with files that cannot be used, and the error names each file and the reason", () =>
    Effect.gen(function*() {
      const { cert, issue, key } = yield* Certificates.makeAuthority
      const client = issue("client", { password: "secret" })
      for (
        const [parameters, expected] of [
          ["sslrootcert=/none", /^a usable file in sslrootcert, not \/none \(ENOENT: no such file/],
          [`sslrootcert=${key}`, /has no certificate in PEM format/],
          [`sslcert=${cert}`, /^both sslcert and sslkey, or none$/],
          [`sslcert=${cert}&sslkey=${client.key}&sslpassword=secret`, /^a usable file in sslkey, .*mismatch/],
          [`sslcert=${client.cert}&sslkey=${client.key}&sslpassword=wrong`, /^a usable file in sslkey, /]
        ] as const
      ) {
        const found = problem(parameters)
        assert.match(found._tag === "Some" ? found.value : "", expected)
        assert.notInclude(JSON.stringify(found), "secret")
        assert.notInclude(JSON.stringify(found), "\\n")
      }
    }))
})
