/** Kills the service and its database (`kill -9`), as often as `KILLS` says. Each acknowledged pet must exist once. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { randomInt } from "node:crypto"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory, issueKey } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { type Running, start } from "../support/Process.ts"

const kills = Number(process.env.KILLS ?? 2)

const kill = (service: Running) =>
  Effect.promise(() => {
    service.process.kill("SIGKILL")
    return service.exit
  })

const names = Effect.flatMap(PgClient.PgClient, (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`)

/** Checks that every acknowledged pet is among `stored`, and that no pet is stored twice. */
const assertStored = (acknowledged: ReadonlyArray<string>, stored: ReadonlyArray<{ readonly name: string }>) => {
  const storedNames = new Set(stored.map(({ name }) => name))
  assert.strictEqual(stored.length, storedNames.size)
  assert.deepStrictEqual(acknowledged.filter((name) => !storedNames.has(name)), [])
  assert.isAbove(acknowledged.length, kills)
}

/**
 * Starts a service under load, runs `meanwhile`, and kills the service. Returns the names of the acknowledged pets.
 */
const loadAndKill = Effect.fnUntraced(function*(
  env: Readonly<Record<string, string>>,
  key: string,
  meanwhile: Effect.Effect<unknown, unknown> = Effect.void
) {
  const service = yield* start(env)
  const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
  // Some pets are acknowledged before the kill.
  while (Load.acknowledged(load.outcomes).length === 0) yield* Effect.sleep("5 millis")
  yield* Effect.sleep(randomInt(200))
  yield* meanwhile
  yield* Effect.sleep(randomInt(200))
  yield* kill(service)
  yield* load.stop
  return Load.acknowledged(load.outcomes)
}, Effect.scoped)

describe(`After ${kills} kills every acknowledged pet is stored once`, () => {
  it.live("on the embedded database", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const database = EmbeddedDatabase.layer(DATA_DIR)
      const key = yield* issueKey(Layer.fresh(database))
      const acknowledged: Array<string> = []
      for (let i = 0; i < kills; i++) acknowledged.push(...yield* loadAndKill({ DATA_DIR }, key))
      assertStored(acknowledged, yield* Effect.provide(names, Layer.fresh(database)))
    }), 60_000 + kills * 20_000)

  it.live.skipIf(Postgres.missing !== undefined)("on PostgreSQL, which is killed too", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      const database = PgClient.layer({ url: Redacted.make(postgres.url) })
      const key = yield* issueKey(Layer.fresh(database))
      const acknowledged: Array<string> = []
      for (let i = 0; i < kills; i++) {
        acknowledged.push(
          ...yield* loadAndKill(
            { DATABASE_URL: postgres.url },
            key,
            // PostgreSQL is killed during commits, and again during the commits after its restart.
            Effect.andThen(postgres.kill, postgres.start)
          )
        )
      }
      assertStored(acknowledged, yield* Effect.provide(names, Layer.fresh(database)))
    }), 60_000 + kills * 20_000)
})
