import { NodeFileSystem } from "@effect/platform-node"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import fs, { existsSync, rmSync, statSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { join } from "node:path"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import * as DataDirectory from "../../src/database/DataDirectory.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import * as Outage from "../../src/database/Outage.ts"
import { dataDirectory, embeddedIn, queryIn } from "../support/Databases.ts"
import { until, untilTrue } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8)

it.effect("Only its owner can read a new DATA_DIR", () =>
  Effect.gen(function*() {
    const directory = join(yield* temporaryDirectory, "data")
    yield* Effect.provide(DataDirectory.createDirectory(directory, "DATA_DIR"), NodeFileSystem.layer)
    assert.strictEqual(modeOf(directory), "700")
  }))

it.effect("DATA_DIR is created only if its parent exists", () =>
  Effect.gen(function*() {
    const parent = join(yield* temporaryDirectory, "none")
    const created = DataDirectory.createDirectory(join(parent, "data"), "DATA_DIR")
    const { message } = yield* Effect.flip(Effect.provide(created, NodeFileSystem.layer))
    assert.include(message, `DATA_DIR: "${parent}" does not exist. Create it`)
    assert.isFalse(existsSync(parent))
  }))

it.effect("Only their owner can read the files of the embedded database, which is vacuumed every ten minutes", () =>
  Effect.gen(function*() {
    const directory = yield* dataDirectory
    const sql = Context.get(yield* Layer.build(embeddedIn(directory)), SqlClient.SqlClient)
    assert.deepStrictEqual(["pgdata", "lock"].map((name) => modeOf(join(directory, name))), ["700", "600"])
    const vacuums = Effect.map(
      sql<{ readonly count: bigint }>`SELECT vacuum_count AS count FROM pg_stat_user_tables WHERE relname = 'pets'`,
      ([row]) => Number(row?.count)
    )
    yield* TestClock.adjust("599 seconds")
    assert.strictEqual(yield* vacuums, 0)
    yield* TestClock.adjust("1 second")
    yield* untilTrue(Effect.map(vacuums, (count) => count === 1), "the table is vacuumed")
  }))

/** Opens the embedded database. Collects the errors with which the process would exit. */
const openIn = Effect.fnUntraced(function*(directory: string) {
  const lost: Array<string> = []
  const layer = EmbeddedDatabase.layer(directory, "DATA_DIR", ({ message }) => void lost.push(message))
  return { lost, sql: Context.get(yield* Layer.build(layer), SqlClient.SqlClient) }
})

it.live.each<readonly [operation: "fsyncSync" | "writeSync", code: string, reason: string]>([
  ["fsyncSync", "EIO", "EIO, the disk failed: fsync "],
  ["writeSync", "ENOSPC", "ENOSPC, the disk is full: write "]
])(
  "After a failed %s, statements get 503, the process exits with one line that names the directory, and no pet is lost",
  ([operation, code, reason]) =>
    Effect.gen(function*() {
      const directory = yield* dataDirectory
      let isFailing = false
      const original = fs[operation]
      const restore = () => {
        Object.assign(fs, { [operation]: original })
        syncBuiltinESMExports()
      }
      yield* Effect.addFinalizer(() => Effect.sync(restore))
      Object.assign(fs, {
        [operation]: (...args: ReadonlyArray<unknown>) => {
          if (isFailing) throw Object.assign(new Error(code), { code })
          return Reflect.apply(original, fs, args)
        }
      })
      syncBuiltinESMExports()
      yield* Effect.scoped(Effect.gen(function*() {
        const { lost, sql } = yield* openIn(directory)
        const insert = sql`INSERT INTO pets (name, category_id) VALUES ('kept', 1)`
        yield* insert
        isFailing = true
        assert.strictEqual(yield* Effect.flip(Outage.failWith(databaseErrors)(insert)), databaseErrors.unavailable)
        // Once the disk has failed, it stays so until a restart.
        isFailing = false
        const later = Outage.failWith(databaseErrors)(sql`SELECT 1`)
        assert.strictEqual(yield* Effect.flip(later), databaseErrors.unavailable)
        assert.lengthOf(lost, 1)
        for (const text of [`"${directory}"`, reason, "Free space"]) assert.include(lost[0], text)
      }))
      assert.isNotEmpty(yield* queryIn(directory)((sql) => sql`SELECT FROM pets WHERE name = 'kept'`))
    }).pipe(Effect.provide(Logger.layer([])))
)

it.effect("A process without requests finds within a second that its lock file was removed", () =>
  Effect.gen(function*() {
    const directory = yield* dataDirectory
    const { lost, sql } = yield* openIn(directory)
    yield* sql`SELECT 1`
    rmSync(join(directory, "lock"))
    yield* TestClock.adjust("1 second")
    yield* until(() => lost.length > 0)
    assert.lengthOf(lost, 1)
    assert.match(lost[0] ?? "", /^The file "lock" in the data directory ".*" was removed or replaced .* exits\./)
  }))
