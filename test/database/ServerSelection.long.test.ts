/** Tests which of several PostgreSQL servers sessions are opened on. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Cause, Context, Effect, Layer } from "effect"
import * as ConnectionString from "../../src/config/ConnectionString.ts"
import * as PostgresSocket from "../../src/database/PostgresSocket.ts"
import { ServerSelection } from "../../src/database/ServerSelection.ts"
import { describe as describeError } from "../../src/observability/Logging.ts"
import * as Postgres from "../support/Postgres.ts"

const makeServers = Effect.gen(function*() {
  const primary = yield* Postgres.run()
  const standby = yield* Postgres.run({}, primary.port)
  return { primary, standby }
})

class Servers extends Context.Service<Servers, Effect.Success<typeof makeServers>>()("test/Servers") {
  static readonly layer = Layer.effect(Servers, makeServers)
}

/** Makes a pool on the servers on `ports`. `port` is that of the server that a statement of the pool reaches. */
const connect = (ports: ReadonlyArray<number>, attributes: string) =>
  Effect.gen(function*() {
    const hosts = ports.map((port) => `127.0.0.1:${port}`).join(",")
    const url = `postgres://postgres@${hosts}/postgres?target_session_attrs=${attributes}`
    const { servers, targetSessionAttrs } = yield* Effect.fromResult(ConnectionString.parse(url))
    const selection = new ServerSelection(servers, targetSessionAttrs)
    const context = yield* Layer.build(PgClient.layer({
      host: "127.0.0.1",
      username: "postgres",
      database: "postgres",
      maxConnections: 2,
      stream: () => selection.open(PostgresSocket.openWatched)
    }))
    const sql = Context.get(context, PgClient.PgClient)
    // Each attempt to connect uses one of the servers.
    const port = Effect.retry(
      Effect.map(sql<{ readonly port: number }>`SELECT inet_server_port() AS port`, ([row]) => row?.port),
      { times: 2 * ports.length }
    )
    return { port }
  }).pipe(Effect.retry({ times: 2 * ports.length }))

describe.skipIf(Postgres.missing !== undefined)("Of several servers", () => {
  layer(Servers.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    it.effect("the first one in the state of target_session_attrs is used", () =>
      Effect.gen(function*() {
        const { primary: { port: primary }, standby: { port: standby } } = yield* Servers
        const used = (ports: ReadonlyArray<number>, attributes: string) =>
          Effect.scoped(Effect.flatMap(connect(ports, attributes), ({ port }) => port))
        assert.strictEqual(yield* used([standby, primary], "read-write"), primary)
        assert.strictEqual(yield* used([standby, primary], "primary"), primary)
        assert.strictEqual(yield* used([primary, standby], "read-only"), standby)
        assert.strictEqual(yield* used([primary, standby], "standby"), standby)
        assert.strictEqual(yield* used([primary, standby], "prefer-standby"), standby)
        assert.strictEqual(yield* used([standby, primary], "any"), standby)
        // No server listens on port 1.
        assert.strictEqual(yield* used([1, primary], "read-write"), primary)
        assert.strictEqual(yield* used([1, primary], "prefer-standby"), primary)
      }))

    it.effect("none is used if none is in that state, and the error says so", () =>
      Effect.gen(function*() {
        const { standby } = yield* Servers
        const { port } = yield* connect([standby.port, standby.port], "read-write")
        const error = yield* Effect.flip(port)
        assert.match(describeError(Cause.fail(error)), /does not have target_session_attrs=read-write/)
      }))

    it.effect("one that becomes read-only is left", () =>
      Effect.gen(function*() {
        const { primary } = yield* Servers
        const other = yield* Postgres.run()
        const { port } = yield* connect([primary.port, other.port], "read-write")
        assert.strictEqual(yield* port, primary.port)
        const setReadOnly = (value: string) =>
          primary.admin((sql) =>
            Effect.andThen(
              sql.unsafe(`ALTER SYSTEM SET default_transaction_read_only = ${value}`),
              sql`SELECT pg_reload_conf()`
            )
          )
        yield* setReadOnly("on")
        while ((yield* port) !== other.port) yield* Effect.sleep("20 millis")
        yield* setReadOnly("off")
        assert.strictEqual(yield* port, other.port)
      }))

    it.effect("a standby that is promoted is left by a pool of standbys", () =>
      Effect.gen(function*() {
        const { primary, standby } = yield* Servers
        const other = yield* Postgres.run({}, primary.port)
        const { port } = yield* connect([other.port, standby.port], "standby")
        assert.strictEqual(yield* port, other.port)
        yield* other.promote
        while ((yield* port) !== standby.port) yield* Effect.sleep("20 millis")
      }))
  })
})
