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

const issueUnlimitedKey = (directory: string) => issueKey(Layer.fresh(EmbeddedDatabase.layer(directory)))

const petNames = (directory: string) =>
  Effect.flatMap(PgClient.PgClient, (sql) => sql<{ readonly name: string }>`SELECT name FROM pets`).pipe(
    Effect.map((pets) => new Set(pets.map(({ name }) => name))),
    Effect.provide(Layer.fresh(EmbeddedDatabase.layer(directory)))
  )

const assertStored = Effect.fnUntraced(function*(directory: string, outcomes: ReadonlyArray<Load.Outcome>) {
  const stored = yield* petNames(directory)
  assert.deepStrictEqual(Load.acknowledged(outcomes).filter((name) => !stored.has(name)), [])
})

const kill = (service: Running) =>
  Effect.promise(() => {
    service.process.kill("SIGKILL")
    return service.exit
  })

/** Starts load on `service`, waits for 20 acknowledged pets, and then runs `fault`. The load continues. */
const loadDuring = Effect.fnUntraced(function*(service: Running, key: string, fault: () => void) {
  const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
  while (Load.acknowledged(load.outcomes).length < 20) yield* Effect.sleep("5 millis")
  fault()
  const faultAt = performance.now()
  return { load, faultAt }
})

describe("A process on the embedded database", () => {
  it.live(
    "stops writing and exits with 1 when its lock file is removed, and no acknowledged pet is lost",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const key = yield* issueUnlimitedKey(DATA_DIR)
        const first = yield* start({ DATA_DIR })
        const { faultAt, load } = yield* loadDuring(first, key, () => unlinkSync(join(DATA_DIR, "lock")))
        const second = yield* start({ DATA_DIR })
        const later = yield* Effect.replicateEffect(Load.request(second.address, key), 40, { concurrency: 8 })
        assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
        yield* load.stop
        assert.deepStrictEqual([...new Set(later.map(({ status }) => status))], [201])

        const after = load.outcomes.filter(({ sentAt }) => sentAt > faultAt)
        // The status is 0 once the process has ended. Reads may still succeed, because pets are cached.
        assert.deepStrictEqual(
          [...new Set(after.filter(({ method }) => method === "POST").map(({ status }) => status))]
            .filter((status) => status !== 503 && status !== 0),
          []
        )
        assert.isBelow(Math.max(...after.map(({ took }) => took)), 10_000)
        const fatal = first.stderr().split("\n").filter((line) => /"level":"FATAL"/i.test(line))
        assert.lengthOf(fatal, 1, first.stderr())
        assert.include(fatal[0], "Never delete or replace a file in it")

        yield* kill(second)
        yield* assertStored(DATA_DIR, [...load.outcomes, ...later])
      })
  )

  it.live("keeps its data directory when the symbolic link to it changes", () =>
    Effect.gen(function*() {
      const directory = yield* dataDirectory
      const key = yield* issueUnlimitedKey(directory)
      const other = `${directory} other`
      cpSync(directory, other, { recursive: true })
      const DATA_DIR = `${directory} link`
      symlinkSync(directory, DATA_DIR)
      const first = yield* start({ DATA_DIR })
      const { load } = yield* loadDuring(first, key, () => {
        rmSync(DATA_DIR)
        symlinkSync(other, DATA_DIR)
      })
      const second = yield* start({ DATA_DIR })
      const later = yield* Effect.replicateEffect(Load.request(second.address, key), 40, { concurrency: 8 })
      const last = yield* Load.request(first.address, key)
      assert.strictEqual(last.status, 201)
      yield* kill(first)
      yield* kill(second)
      yield* load.stop
      yield* assertStored(directory, [...load.outcomes, last])
      yield* assertStored(other, later)
    }))

  it.live("exits with 1 when its pgdata directory is removed, and no create succeeds meanwhile", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const key = yield* issueUnlimitedKey(DATA_DIR)
      const service = yield* start({ DATA_DIR })
      assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
      rmSync(join(DATA_DIR, "pgdata"), { recursive: true })
      const outcomes = yield* Effect.replicateEffect(Load.request(service.address, key), 40, { concurrency: 8 })
      // The status is 0 for requests after the process has ended.
      assert.deepStrictEqual(outcomes.filter(({ status }) => status !== 503 && status !== 0), [])
      assert.strictEqual(outcomes[0]?.status, 503)
      assert.strictEqual(yield* Effect.promise(() => service.exit), 1)
      assert.include(service.stderr(), "pgdata/global/pg_control")
    }))
})
