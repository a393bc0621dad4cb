import { assert, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Tracer } from "effect"
import { SqlClient } from "effect/sql"
import { databaseOptions } from "../../src/config/RoomOptions.ts"
import { withoutTimeout } from "../../src/database/Database.ts"

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
