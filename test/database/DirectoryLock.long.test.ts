/** Only one process at a time writes to a data directory, even when an operator moves or deletes files in it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { rmSync, symlinkSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { issue, type Running, start, stop, until } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Sends 40 creates, which must succeed. */
const createPets = Effect.fnUntraced(function*({ address }: Running, key: string) {
  const outcomes = yield* Effect.replicateEffect(Load.request(address, key), 40, { concurrency: 8 })
  assert.isTrue(outcomes.every(({ status }) => status === 201))
  return outcomes
})

describe("A process on the embedded database", () => {
  it.live("stops writing and exits with 1 when its lock file is removed, and no acknowledged pet is lost", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const first = yield* start({ DATA_DIR })
      const { key } = yield* issue(first)
      const load = yield* Load.run(first.address, key, 8)
      yield* until(() => Load.acknowledged(load.outcomes).length >= 20)
      unlinkSync(join(DATA_DIR, "lock"))
      const faultAt = performance.now()
      const second = yield* start({ DATA_DIR })
      const later = yield* createPets(second, key)
      assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
      yield* load.stop
      // A create that was sent after the process ended has the status 0. Reads may succeed, because pets are cached.
      const creates = load.outcomes.filter(({ method, sentAt }) => method === "POST" && sentAt > faultAt)
      assert.deepStrictEqual(creates.filter(({ status }) => status !== 503 && status !== 0), [])
      const fatal = first.stderr().split("\n").filter((line) => /"level":"FATAL"/i.test(line))
      assert.lengthOf(fatal, 1, first.stderr())
      assert.include(fatal[0], "Never delete or replace a file in it")
      yield* stop(second, "SIGKILL")
      yield* Load.assertStored([...load.outcomes, ...later], EmbeddedDatabase.layer(DATA_DIR))
    }))

  it.live("keeps its data directory when the symbolic link to it changes", () =>
    Effect.gen(function*() {
      const DATA_DIR = join(yield* temporaryDirectory, "link")
      const startIn = Effect.fnUntraced(function*(directory: string) {
        rmSync(DATA_DIR, { force: true })
        symlinkSync(directory, DATA_DIR)
        const service = yield* start({ DATA_DIR })
        return { directory, service, key: (yield* issue(service)).key }
      })
      const processes = [yield* startIn(yield* dataDirectory), yield* startIn(yield* dataDirectory)]
      for (const { directory, key, service } of processes) {
        const outcomes = yield* createPets(service, key)
        yield* stop(service, "SIGKILL")
        yield* Load.assertStored(outcomes, EmbeddedDatabase.layer(directory))
      }
    }))
})
