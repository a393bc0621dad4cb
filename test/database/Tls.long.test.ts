/** Tests TLS to a PostgreSQL server, with authorities of its own. */
import { assert, describe, layer } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { describe as describeCause } from "../../src/observability/LogLines.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Proxy from "../support/Proxy.ts"

const makeServers = Effect.gen(function*() {
  const authority = yield* Certificates.makeAuthority
  const other = yield* Certificates.makeAuthority
  const certificate = authority.issue("localhost", { altNames: "IP:127.0.0.1" })
  const [server, misnamed, plain] = yield* Effect.all([
    Postgres.runWithTls({
      certificate,
      clientAuthority: authority,
      access: ["hostnossl all certified all reject", "hostssl all certified all trust clientcert=verify-full"]
    }),
    Postgres.runWithTls({ certificate: authority.issue("elsewhere", { altNames: "DNS:elsewhere.example" }) }),
    Postgres.run()
  ], { concurrency: 2 })
  yield* server.admin((sql) => sql`CREATE ROLE certified LOGIN SUPERUSER`)
  return { authority, other, server, misnamed, plain }
})

class Servers extends Context.Service<Servers, Effect.Success<typeof makeServers>>()("test/Servers") {
  static readonly layer = Layer.effect(Servers, makeServers)
}

const connect = (DATABASE_URL: string) =>
  Layer.provide(Database.layer, ConfigProvider.layer(ConfigProvider.fromUnknown({ DATABASE_URL })))

const isEncrypted = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ ssl: boolean }>`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
  return row?.ssl
})

/** Connects to `url`. Returns whether the connection is encrypted, or describes the error. */
const outcome = (url: string) =>
  Effect.map(
    Effect.exit(Effect.provide(isEncrypted, Layer.fresh(connect(url)))),
    (exit) => Exit.isSuccess(exit) ? exit.value : describeCause(exit.cause)
  )

const url = ({ port }: { readonly port: number }, parameters: Readonly<Record<string, string>>, user = "postgres") =>
  `postgres://${user}@127.0.0.1:${port}/postgres?${new URLSearchParams(parameters).toString()}`

describe.skipIf(Postgres.missing !== undefined || Certificates.missing !== undefined)(
  "A connection to PostgreSQL",
  () => {
    layer(Servers.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
      it.effect("is encrypted with sslmode=require, and never in plain text then", () =>
        Effect.gen(function*() {
          const { plain, server } = yield* Servers
          assert.isFalse(yield* outcome(url(server, {})))
          assert.isTrue(yield* outcome(url(server, { sslmode: "require" })))
          assert.match(String(yield* outcome(url(plain, { sslmode: "require" }))), /SSL|TLS/)
        }))

      it.effect("verifies the authority in every mode with sslrootcert", () =>
        Effect.gen(function*() {
          const { authority, other, server } = yield* Servers
          for (const sslmode of ["require", "verify-ca", "verify-full"]) {
            assert.isTrue(yield* outcome(url(server, { sslmode, sslrootcert: authority.cert })), sslmode)
            assert.match(
              String(yield* outcome(url(server, { sslmode, sslrootcert: other.cert }))),
              /unable to verify the first certificate|self-signed|signature/,
              sslmode
            )
          }
        }))

      it.effect("compares the host with the certificate only with sslmode=verify-full", () =>
        Effect.gen(function*() {
          const { authority: { cert: sslrootcert }, misnamed } = yield* Servers
          assert.isTrue(yield* outcome(url(misnamed, { sslmode: "verify-ca", sslrootcert })))
          assert.include(
            yield* outcome(url(misnamed, { sslmode: "verify-full", sslrootcert })),
            "does not match certificate's altnames"
          )
        }))

      it.effect("presents sslcert to a server that requires a client certificate", () =>
        Effect.gen(function*() {
          const { authority, server } = yield* Servers
          const { cert, key } = authority.issue("certified", { password: "s=&3" })
          const as = (parameters: Readonly<Record<string, string>>) =>
            outcome(url(server, { sslmode: "require", ...parameters }, "certified"))
          assert.isTrue(yield* as({ sslcert: cert, sslkey: key, sslpassword: "s=&3" }))
          assert.include(yield* as({}), "connection requires a valid client certificate")
        }))

      it.effect("uses a Unix socket for a host that is a directory", () =>
        Effect.gen(function*() {
          const { server: { port, socketDirectory } } = yield* Servers
          assert.isFalse(yield* outcome(`postgres://postgres@${encodeURIComponent(socketDirectory)}:${port}/postgres`))
        }))

      it.effect("is replaced within 5 seconds of silence, with and without TLS", () =>
        Effect.gen(function*() {
          const { authority, server } = yield* Servers
          const replaced = Effect.fnUntraced(function*(parameters: Readonly<Record<string, string>>) {
            const proxy = yield* Proxy.run(server.port)
            yield* Effect.gen(function*() {
              const sql = yield* SqlClient.SqlClient
              assert.strictEqual(yield* isEncrypted, parameters.sslmode !== "disable")
              proxy.silence()
              const start = performance.now()
              assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
              yield* sql`SELECT 1`
              assert.isBelow(performance.now() - start, 5_500)
            }).pipe(Effect.provide(Layer.fresh(connect(url(proxy, parameters)))))
          })
          const modes = [{ sslmode: "disable" }, { sslmode: "verify-full", sslrootcert: authority.cert }]
          yield* Effect.forEach(modes, replaced, { concurrency: 2 })
        }), 30_000)
    })
  }
)
