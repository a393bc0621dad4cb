import { NodeFileSystem } from "@effect/platform-node"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { existsSync, statSync } from "node:fs"
import { join } from "node:path"
import * as DataDirectory from "../../src/database/DataDirectory.ts"
import { dataDirectory, embeddedIn } from "../support/Databases.ts"
import { untilTrue } from "../support/Process.ts"
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
