import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { unlinkSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { issue, start, stop, until } from "../support/Process.ts"

it.live("A process exits with 1 when the lock file of its database is removed, and no acknowledged pet is lost", () =>
  Effect.gen(function*() {
    const DATA_DIR = yield* dataDirectory
    const first = yield* start({ DATA_DIR })
    const { key } = yield* issue(first)
    const load = yield* Load.run(first.address, key, 8)
    yield* until(() => Load.acknowledged(load.outcomes).length >= 20)
    unlinkSync(join(DATA_DIR, "lock"))
    const faultAt = performance.now()
    const second = yield* start({ DATA_DIR })
    const later = yield* Effect.replicateEffect(Load.request(second.address, key), 40, { concurrency: 8 })
    Load.assertStatuses(later, 201)
    assert.strictEqual(yield* Effect.promise(() => first.exit), 1)
    yield* load.stop
    // A create that was sent after the process ended has the status 0. Reads may succeed, because pets are cached.
    Load.assertStatuses(load.outcomes.filter(({ method, sentAt }) => method === "POST" && sentAt > faultAt), 503, 0)
    const fatal = first.stderr().split("\n").filter((line) => /"level":"FATAL"/i.test(line))
    assert.lengthOf(fatal, 1, first.stderr())
    assert.include(fatal[0], "Never delete or replace a file in it")
    yield* stop(second, "SIGKILL")
    yield* Load.assertStored([...load.outcomes, ...later], EmbeddedDatabase.layer(DATA_DIR))
  }))
