/** Only one process at a time writes to a data directory, even when an operator moves or deletes files in it. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { cpSync, rmSync, symlinkSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory, issueKey } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { type Running, start } from "../support/Process.ts"

const database = (directory: string) => Layer.fresh(EmbeddedDatabase.layer(directory))

/** A data directory, and a key whose limits are never reached. */
const setUp = Effect.gen(function*() {
  const directory = yield* dataDirectory
  return { directory, key: yield* issueKey(database(directory)) }
})

const assertStored = Effect.fnUntraced(function*(directory: string, outcomes: ReadonlyArray<Load.Outcome>) {
  const pets = yield* Effect.flatMap(PgClient.PgClient, (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`)
    .pipe(Effect.provide(database(directory)))
  assert.includeMembers(pets.map(({ name }) => name), [...Load.acknowledged(outcomes)])
})

const kill = (service: Running) =>
  Effect.promise(() => {
    service.process.kill("SIGKILL")
    return service.exit
  })

/** Sends 40 creates. */
const createPets = ({ address }: Running, key: string) =>
  Effect.replicateEffect(Load.request(address, key), 40, { concurrency: 8 })

describe("A process on the embedded database", () => {
  it.live("stops writing and exits with 1 when its lock file is removed, and no acknowledged pet is lost", () =>
    Effect.gen(function*() {
      const { directory: DATA_DIR, key } = yield* setUp
      const first = yield* start({ DATA_DIR })
      const load = yield* Load.run({ address: () => first.address, key, callers: 8 })
      while (Load.acknowledged(load.outcomes).length < 20) yield* Effect.sleep("5 millis")
      unlinkSync(join(DATA_DIR, "lock"))
      const faultAt = performance.now()
      const second = yield* start({ DATA_DIR })
      const later = yield* createPets(second, key)
      assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
      yield* load.stop
      assert.deepStrictEqual([...new Set(later.map(({ status }) => status))], [201])
      // A create that was sent after the process ended has the status 0. Reads may succeed, because pets are cached.
      const creates = load.outcomes.filter(({ method, sentAt }) => method === "POST" && sentAt > faultAt)
      assert.deepStrictEqual(creates.filter(({ status }) => status !== 503 && status !== 0), [])
      const fatal = first.stderr().split("\n").filter((line) => /"level":"FATAL"/i.test(line))
      assert.lengthOf(fatal, 1, first.stderr())
      assert.include(fatal[0], "Never delete or replace a file in it")
      yield* kill(second)
      yield* assertStored(DATA_DIR, [...load.outcomes, ...later])
    }))

  it.live("keeps its data directory when the symbolic link to it changes", () =>
    Effect.gen(function*() {
      const { directory, key } = yield* setUp
      const [other, DATA_DIR] = [`${directory} other`, `${directory} link`]
      cpSync(directory, other, { recursive: true })
      symlinkSync(directory, DATA_DIR)
      const first = yield* start({ DATA_DIR })
      rmSync(DATA_DIR)
      symlinkSync(other, DATA_DIR)
      const second = yield* start({ DATA_DIR })
      const [ofFirst, ofSecond] = [yield* createPets(first, key), yield* createPets(second, key)]
      assert.deepStrictEqual([...ofFirst, ...ofSecond].filter(({ status }) => status !== 201), [])
      yield* kill(first)
      yield* kill(second)
      yield* assertStored(directory, ofFirst)
      yield* assertStored(other, ofSecond)
    }))
})
