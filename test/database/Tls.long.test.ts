/** Tests TLS to a PostgreSQL server, with authorities of its own. */
import { assert, describe, layer } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { describe as describeCause } from "../../src/observability/LogText.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Postgres from "../support/Postgres.ts"

const makeServers = Effect.gen(function*() {
  const authority = yield* Certificates.makeAuthority
  const other = yield* Certificates.makeAuthority
  const [server, misnamed, plain] = yield* Effect.all([
    Postgres.runWithTls({
      certificate: authority.issue("localhost", { altNames: "IP:127.0.0.1" }),
      clientAuthority: authority,
      access: ["hostnossl all certified all reject", "hostssl all certified all trust clientcert=verify-full"]
    }),
    Postgres.runWithTls({ certificate: authority.issue("elsewhere", { altNames: "DNS:elsewhere.example" }) }),
    Postgres.run()
  ], { concurrency: 2 })
  yield* server.admin((sql) => sql`CREATE ROLE certified LOGIN SUPERUSER`)
  return {
    ports: { certified: server.port, misnamed: misnamed.port, plain: plain.port },
    socketDirectory: server.socketDirectory,
    own: authority.cert,
    other: other.cert,
    client: authority.issue("certified", { password: "s=&3" })
  }
})

class Servers extends Context.Service<Servers, Effect.Success<typeof makeServers>>()("test/Servers") {
  static readonly layer = Layer.effect(Servers, makeServers)
}

type Parameters = Readonly<Record<string, string>>

/** Connects to a server. Returns "encrypted" or "plain", or describes the error. */
const outcome = (port: number, parameters: Parameters, user = "postgres", host = "127.0.0.1") => {
  const DATABASE_URL = `postgres://${user}@${host}:${port}/postgres?${new URLSearchParams(parameters).toString()}`
  const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ DATABASE_URL }))
  return Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql<{ readonly ssl: boolean }>`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
  ).pipe(
    Effect.map(([row]) => row?.ssl === true ? "encrypted" : "plain"),
    Effect.provide(Layer.fresh(Layer.provide(Database.layer, config))),
    Effect.catchCause((cause) => Effect.succeed(describeCause(cause)))
  )
}

const [encrypted, untrusted] = [/^encrypted$/, /unable to verify|self-signed|signature/]

/** Servers, parameters of a connection, where `own` and `other` are authorities, and the outcome. */
const connections: ReadonlyArray<readonly ["certified" | "misnamed" | "plain", Parameters, RegExp]> = [
  ["certified", {}, /^plain$/],
  ["certified", { sslmode: "require" }, encrypted],
  ["plain", { sslmode: "require" }, /SSL|TLS/],
  ...["require", "verify-ca", "verify-full"].flatMap((sslmode) => [
    ["certified", { sslmode, sslrootcert: "own" }, encrypted] as const,
    ["certified", { sslmode, sslrootcert: "other" }, untrusted] as const
  ]),
  ["misnamed", { sslmode: "verify-ca", sslrootcert: "own" }, encrypted],
  ["misnamed", { sslmode: "verify-full", sslrootcert: "own" }, /does not match certificate's altnames/]
]

describe.skipIf(Postgres.missing !== undefined || Certificates.missing !== undefined)(
  "A connection to PostgreSQL",
  () => {
    layer(Servers.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
      it.effect.each(connections)(
        "to the %s server with %j is %s",
        ([server, { sslrootcert, ...parameters }, expected]) =>
          Effect.gen(function*() {
            const { other, own, ports } = yield* Servers
            const authority = sslrootcert === "own" ? own : other
            const all = { ...parameters, ...sslrootcert !== undefined && { sslrootcert: authority } }
            assert.match(yield* outcome(ports[server], all), expected)
          })
      )

      it.effect("presents sslcert to a server that requires a client certificate", () =>
        Effect.gen(function*() {
          const { client: { cert, key }, ports } = yield* Servers
          const as = (parameters: Parameters) =>
            outcome(ports.certified, { sslmode: "require", ...parameters }, "certified")
          assert.strictEqual(yield* as({ sslcert: cert, sslkey: key, sslpassword: "s=&3" }), "encrypted")
          assert.include(yield* as({}), "connection requires a valid client certificate")
        }))

      it.effect("uses a Unix socket for a host that is a directory", () =>
        Effect.gen(function*() {
          const { ports, socketDirectory } = yield* Servers
          const host = encodeURIComponent(socketDirectory)
          assert.strictEqual(yield* outcome(ports.certified, {}, "postgres", host), "plain")
        }))
    })
  }
)
