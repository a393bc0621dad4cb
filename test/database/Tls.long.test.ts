import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Record } from "effect"
import { SqlClient } from "effect/sql"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import * as Certificates from "../support/Certificates.ts"
import { databaseAt } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"

const makeServers = Effect.gen(function*() {
  const authority = yield* Certificates.makeAuthority
  const other = yield* Certificates.makeAuthority
  const [certified, misnamed, plain] = yield* Effect.all([
    Postgres.run({}, undefined, {
      certificate: authority.issue("localhost", { altNames: "IP:127.0.0.1" }),
      clientAuthority: authority,
      access: ["hostnossl all certified all reject", "hostssl all certified all trust clientcert=verify-full"]
    }),
    Postgres.run({}, undefined, { certificate: authority.issue("elsewhere", { altNames: "DNS:elsewhere.example" }) }),
    Postgres.run()
  ], { concurrency: 2 })
  yield* certified.admin((sql) => sql`CREATE ROLE certified LOGIN SUPERUSER`)
  const { cert, key } = authority.issue("certified", { password: "s=&3" })
  const paths: Parameters = { own: authority.cert, other: other.cert, cert, key, socket: certified.socketDirectory }
  return { ports: { certified: certified.port, misnamed: misnamed.port, plain: plain.port }, paths }
})
const Servers = Context.Service<Effect.Success<typeof makeServers>>("test/Servers")

type Parameters = Readonly<Record<string, string>>

/** Connects to a server. Returns "encrypted" or "plain", or describes the error. */
const outcome = (port: number, { host = "127.0.0.1", ...parameters }: Parameters) => {
  const query = new URLSearchParams(parameters).toString()
  const url = `postgres://postgres@${encodeURIComponent(host)}:${port}/postgres?${query}`
  const statement = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
  return Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe<{ readonly ssl: boolean }>(statement)).pipe(
    Effect.map(([row]) => row?.ssl === true ? "encrypted" : "plain"),
    Effect.provide(Layer.fresh(databaseAt(url))),
    Effect.catchCause((cause) => Effect.succeed(describeCause(cause)))
  )
}

const [plain, encrypted] = [/^plain$/, /^encrypted$/]
const [untrusted, otherHost] = [/unable to verify|self-signed|signature/, /does not match certificate's altnames/]
const noCertificate = /connection requires a valid client certificate/
const certified = { user: "certified", sslmode: "require" }
const keyPair = { sslcert: "cert", sslkey: "key", sslpassword: "s=&3" }

/** Servers, parameters of a connection, which name paths of `makeServers`, and the outcome. */
const connections: ReadonlyArray<
  readonly [title: string, server: "certified" | "misnamed" | "plain", Parameters, outcome: RegExp]
> = [
  ["uses no TLS by default", "certified", {}, plain],
  ["uses TLS with sslmode=require", "certified", { sslmode: "require" }, encrypted],
  ["fails with sslmode=require if the server has no TLS", "plain", { sslmode: "require" }, /SSL|TLS/],
  ...["require", "verify-ca", "verify-full"].flatMap((sslmode) => [
    [`trusts sslrootcert with ${sslmode}`, "certified", { sslmode, sslrootcert: "own" }, encrypted] as const,
    [`trusts no other authority with ${sslmode}`, "certified", { sslmode, sslrootcert: "other" }, untrusted] as const
  ]),
  ["ignores the host name with verify-ca", "misnamed", { sslmode: "verify-ca", sslrootcert: "own" }, encrypted],
  ["checks the host name with verify-full", "misnamed", { sslmode: "verify-full", sslrootcert: "own" }, otherHost],
  ["presents sslcert to a server that requires it", "certified", { ...certified, ...keyPair }, encrypted],
  ["fails without the client certificate that a server requires", "certified", certified, noCertificate],
  ["uses a Unix socket for a host that is a directory", "certified", { host: "socket" }, plain]
]

describe.skipIf(!Postgres.isInstalled || !Certificates.isInstalled)("A connection to PostgreSQL", () => {
  layer(Layer.effect(Servers, makeServers), { excludeTestServices: true, timeout: 60_000 })((it) => {
    it.effect.each(connections)("%s", ([, server, parameters, expected]) =>
      Effect.gen(function*() {
        const { paths, ports } = yield* Servers
        assert.match(yield* outcome(ports[server], Record.map(parameters, (value) => paths[value] ?? value)), expected)
      }))
  })
})
