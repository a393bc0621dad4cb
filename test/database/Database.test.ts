/** Tests the messages of a start that fails, and the spans of statements, which docs/monitoring.md describes. */
import { NodeFileSystem } from "@effect/platform-node"
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Tracer } from "effect"
import { SqlClient } from "effect/sql"
import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import { join } from "node:path"
import { databaseOptions } from "../../src/config/RoomOptions.ts"
import { withoutTimeout } from "../../src/database/Database.ts"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import { databaseAt, databaseOfSettings } from "../support/Databases.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Runs a server that sends `reply` to each connection. Returns its port. */
const serverReplying = Effect.fnUntraced(function*(reply: Buffer) {
  const server = createServer((socket) => {
    socket.on("error", () => {})
    socket.once("data", () => socket.end(reply))
  })
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
  yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"))
  return (server.address() as AddressInfo).port
})

/** The message `ErrorResponse` of PostgreSQL's protocol. */
const errorResponse = (code: string, text: string): Buffer => {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${text}\0\0`)
  const head = Buffer.from("E\0\0\0\0")
  head.writeInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}

/** Returns the line that the process logs before it exits with 1. */
const failedStart = <A, E>(database: Layer.Layer<A, E>) =>
  Effect.map(Effect.flip(Effect.sandbox(Effect.scoped(Layer.build(Layer.fresh(database))))), describeCause)

const unusable = "DATABASE_URL: the database cannot be used"

it.live.each<readonly [title: string, reply: Buffer, message: string, sslmode?: string]>([
  [
    "a pooler that rejects a parameter",
    errorResponse("08P01", "unsupported startup parameter: statement_timeout"),
    "DATABASE_URL: the server does not accept the parameter statement_timeout. Add pgbouncer=true"
  ],
  ["a wrong password", errorResponse("28P01", "wrong password"), `${unusable}: .*wrong password`],
  ["a missing database", errorResponse("3D000", "no such database"), `${unusable}: .*no such database`],
  ["a server without TLS", Buffer.from("N"), `${unusable}.*add sslmode=disable to connect without it`, "require"]
])(
  "A start names DATABASE_URL, and the cause, for %s",
  ([, reply, message, sslmode = "disable"]) =>
    Effect.gen(function*() {
      const port = yield* serverReplying(reply)
      const url = `postgres://a:secret@127.0.0.1:${port}/a?sslmode=${sslmode}`
      const line = yield* failedStart(databaseAt(url))
      assert.match(line, new RegExp(`^${message}`))
      assert.notInclude(line, "secret")
    })
)

it.live("A start names the parent of DATA_DIR if it does not exist", () =>
  Effect.gen(function*() {
    const parent = join(yield* temporaryDirectory, "none")
    const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ DATA_DIR: join(parent, "data") }))
    const line = yield* failedStart(Layer.provide(databaseOfSettings, [config, NodeFileSystem.layer]))
    assert.match(line, new RegExp(`^DATA_DIR: "${parent}" does not exist\\. Create it`))
  }))

it.live("The span of a statement has the name of its database, its server, and the text of the statement", () =>
  Effect.gen(function*() {
    // Nothing listens on port 1. The statement fails within its span.
    const config = ConfigProvider.fromUnknown({ DATABASE_URL: "postgres://a@127.0.0.1:1/shop" })
    const { server } = yield* Effect.provideService(databaseOptions, ConfigProvider.ConfigProvider, config)
    const sql = Context.get(yield* Layer.build(withoutTimeout(server ?? assert.fail())), SqlClient.SqlClient)
    const spans: Array<Tracer.Span> = []
    const span: Tracer.Tracer["span"] = (options) => {
      const span = Tracer.nativeTracer.span(options)
      spans.push(span)
      return span
    }
    yield* Effect.flip(Effect.provideService(sql`SELECT 1 AS one`, Tracer.Tracer, Tracer.make({ span })))
    assert.deepStrictEqual(spans.map(({ name }) => name), ["shop"])
    assert.include(Object.fromEntries(spans[0]?.attributes ?? []), {
      "db.namespace": "shop",
      "db.query.text": "SELECT 1 AS one",
      "server.address": "127.0.0.1",
      "server.port": 1
    })
  }))
