/** Acknowledged pets survive a `kill -9` of the service and of its database, once each. `KILLS` is the number of kills. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { randomInt } from "node:crypto"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { issueKey, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { type Running, start } from "../support/Process.ts"

const kills = Number(process.env.KILLS ?? 5)

const kill = (service: Running) =>
  Effect.promise(() => {
    service.process.kill("SIGKILL")
    return service.exit
  })

const names = Effect.flatMap(PgClient.PgClient, (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`)

/** Checks that every acknowledged pet is among `kept`, and that no pet is there twice. */
const check = (acknowledged: ReadonlyArray<string>, kept: ReadonlyArray<{ readonly name: string }>) => {
  const once = new Set(kept.map(({ name }) => name))
  assert.strictEqual(kept.length, once.size)
  assert.deepStrictEqual(acknowledged.filter((name) => !once.has(name)), [])
  assert.isAbove(acknowledged.length, kills)
}

/**
 * Loads a service for a moment, runs `meanwhile`, and kills the service in the middle of the load. Returns the names
 * that were acknowledged.
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

describe(`After ${kills} kills every acknowledged animal is there, once`, () => {
  it.live("on the embedded database", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const database = EmbeddedDatabase.layer(DATA_DIR)
      const key = yield* issueKey(Layer.fresh(database))
      const acknowledged: Array<string> = []
      for (let i = 0; i < kills; i++) acknowledged.push(...yield* loadAndKill({ DATA_DIR }, key))
      check(acknowledged, yield* Effect.provide(names, Layer.fresh(database)))
    }), 30_000 + kills * 10_000)

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
            // Kill it in the middle of its commits, and again in the middle of the commits that follow.
            Effect.andThen(postgres.kill, postgres.start)
          )
        )
      }
      check(acknowledged, yield* Effect.provide(names, Layer.fresh(database)))
    }), 30_000 + kills * 10_000)
})
