import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Logger } from "effect"
import { databaseOptions } from "../../src/config/RoomOptions.ts"
import * as EmbeddedImport from "../../src/database/EmbeddedImport.ts"
import { hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import { temporaryDirectory } from "../support/Temporary.ts"
import * as PowerLoss from "./PowerLoss.ts"

const cuts = Number(process.env.CUTS ?? 10)

it.live(
  "The embedded database has everything that it acknowledged before CUTS power losses, once",
  () =>
    Effect.gen(function*() {
      const seeds = Array.from({ length: cuts }, (_, i) => 1_000 + i)
      assert.deepStrictEqual(yield* PowerLoss.losses(yield* PowerLoss.record(), seeds), [])
    }),
  60_000 + cuts * 10_000
)

it.live.each(["all", "cluster", "directories", "late", "wal"] as const)(
  "A power loss shows which syncs a database leaves out, or waits for too late: %s",
  (broken) =>
    Effect.gen(function*() {
      const changes = yield* PowerLoss.record(broken)
      let [seed, found] = [0, ""]
      while (seed < 40 && found === "") [found = ""] = yield* PowerLoss.losses(changes, [++seed])
      assert.notStrictEqual(found, "", "no seed shows it")
    }),
  300_000
)

it.live.skipIf(!hasServer)("An import after a power loss has the acknowledged pets", () =>
  Effect.gen(function*() {
    const changes = yield* PowerLoss.record()
    for (const seed of [1, 2, 4]) {
      const [DATA_DIR, DATABASE_URL] = [yield* temporaryDirectory, yield* temporaryDatabaseUrl]
      const marks = PowerLoss.cut(changes, seed, DATA_DIR)
      const pets = marks.filter(({ kind }) => kind === "pet" || kind === "replayable")
      assert.isNotEmpty(pets)
      yield* Effect.flatMap(databaseOptions, EmbeddedImport.run).pipe(
        Effect.provideService(
          ConfigProvider.ConfigProvider,
          ConfigProvider.fromUnknown({ DATA_DIR, DATABASE_URL })
        ),
        Effect.provide(Logger.layer([]))
      )
      const rows = yield* Postgres.queryOn(DATABASE_URL)((sql) => sql`SELECT name, id::text AS id FROM pets`)
      for (const { id, value } of pets) assert.deepInclude(rows, { name: id, id: value }, `seed ${seed}`)
    }
  }), 300_000)
