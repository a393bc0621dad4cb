/** Only one process at a time writes to a data directory, even when an operator moves or deletes files in it. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { cpSync, mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { issueKey, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { type Running, start } from "../support/Process.ts"

/** Creates an empty data directory and returns its path. */
const dataDirectory = Effect.map(temporaryDirectory, (parent) => {
  const directory = join(parent, "data")
  mkdirSync(directory)
  return directory
})

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

const removeLock = (directory: string) => unlinkSync(join(directory, "lock"))
const replaceLock = (directory: string) => {
  cpSync(join(directory, "lock"), join(directory, "copy"))
  renameSync(join(directory, "copy"), join(directory, "lock"))
}

describe("A process on the embedded database", () => {
  for (
    const { fault, name } of [
      { name: "removed", fault: removeLock },
      { name: "replaced", fault: replaceLock }
    ]
  ) {
    it.live(
      `stops writing and exits with 1 when its lock file is ${name}, and no acknowledged pet is lost`,
      () =>
        Effect.gen(function*() {
          const DATA_DIR = yield* dataDirectory
          const key = yield* issueUnlimitedKey(DATA_DIR)
          const first = yield* start({ DATA_DIR })
          const { faultAt, load } = yield* loadDuring(first, key, () => fault(DATA_DIR))
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
        }),
      90_000
    )
  }

  it.live(
    "exits with 1 when another directory replaces its data directory",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const key = yield* issueUnlimitedKey(DATA_DIR)
        const other = `${DATA_DIR} other`
        cpSync(DATA_DIR, other, { recursive: true })
        const moved = `${DATA_DIR} moved`
        const first = yield* start({ DATA_DIR })
        const { load } = yield* loadDuring(first, key, () => {
          renameSync(DATA_DIR, moved)
          renameSync(other, DATA_DIR)
        })
        const second = yield* start({ DATA_DIR })
        const later = yield* Effect.replicateEffect(Load.request(second.address, key), 40, { concurrency: 8 })
        assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
        yield* load.stop
        yield* kill(second)
        yield* assertStored(moved, load.outcomes)
        yield* assertStored(DATA_DIR, later)
      }),
    90_000
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
    }), 90_000)

  it.live("exits with 1 when its pgdata directory is removed, even without requests", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const service = yield* start({ DATA_DIR })
      rmSync(join(DATA_DIR, "pgdata"), { recursive: true })
      assert.strictEqual(yield* Effect.promise(() => service.exit), 1)
      assert.include(service.stderr(), "pgdata/global/pg_control")
    }), 90_000)

  it.live(
    "keeps its lock when the lock file is overwritten in place",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const key = yield* issueUnlimitedKey(DATA_DIR)
        const first = yield* start({ DATA_DIR })
        const outcomes: Array<Load.Outcome> = []
        for (const content of ["", "no lock\n".repeat(1_000)]) {
          writeFileSync(join(DATA_DIR, "lock"), content)
          const { stderr } = yield* Effect.flip(start({ DATA_DIR }))
          assert.include(stderr, "Another process uses the data directory")
          assert.include(stderr, "Never delete or replace the file \\\"lock\\\"")
          outcomes.push(yield* Load.request(first.address, key))
        }
        assert.deepStrictEqual(outcomes.map(({ status }) => status), [201, 201])
        yield* kill(first)
        yield* start({ DATA_DIR }).pipe(
          Effect.flatMap((second) => Load.request(second.address, key)),
          Effect.map((outcome) => outcomes.push(outcome)),
          Effect.scoped
        )
        yield* assertStored(DATA_DIR, outcomes)
      }),
    90_000
  )

  for (const { fault, name } of [{ name: "removed", fault: removeLock }, { name: "replaced", fault: replaceLock }]) {
    it.live(
      `waits two seconds, at the first start only, when the lock file was ${name} before it`,
      () =>
        Effect.gen(function*() {
          const DATA_DIR = yield* dataDirectory
          const key = yield* issueUnlimitedKey(DATA_DIR)
          fault(DATA_DIR)
          const startedAt = performance.now()
          const service = yield* start({ DATA_DIR })
          assert.isAbove(performance.now() - startedAt, 2_000)
          assert.include(service.stderr(), "was removed or replaced")
          assert.strictEqual((yield* Load.request(service.address, key)).status, 201)
          yield* kill(service)
          const next = yield* start({ DATA_DIR })
          assert.notInclude(next.stderr(), "was removed or replaced")
        }),
      30_000
    )
  }
})
