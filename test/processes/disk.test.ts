import { assert, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { issue, send, start, until } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

const preload = fileURLToPath(new URL("../support/FailingDisk.ts", import.meta.url))

it.live.each<readonly [title: string, operation: string, reason: string]>([
  ["a failed fsync", "fsync", "EIO, the disk failed: fsync"],
  ["a full disk", "write", "ENOSPC, the disk is full: write"]
])(
  "The embedded service acknowledges nothing after %s, and exits with a line that names it",
  ([, operation, reason]) =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const DISK_FAULT_FILE = join(yield* temporaryDirectory, "fault")
      const settings = { DATA_DIR, DISK_FAULT_FILE, NODE_OPTIONS: `--import=${preload}` }
      const service = yield* start(settings)
      const { key } = yield* issue(service)
      const load = yield* Load.run(service.address, key, 8)
      yield* until(() => Load.acknowledged(load.outcomes).length >= 20)
      writeFileSync(DISK_FAULT_FILE, operation)
      yield* until(() => service.stderr().includes(`"level":"FATAL"`))
      const failedAt = performance.now()
      // The management port can be closed already.
      const readiness = yield* Effect.exit(send(`${service.management}/readyz`, ""))
      assert.isFalse(Exit.isSuccess(readiness) && readiness.value.status === 200)
      assert.strictEqual(yield* Effect.promise(() => service.exit), 1)
      yield* load.stop
      const fatal = service.stderr().split("\n").filter((line) => line.includes(`"level":"FATAL"`))
      assert.lengthOf(fatal, 1, service.stderr())
      for (const text of [DATA_DIR, reason]) assert.include(fatal[0], text)
      Load.assertStatuses(load.outcomes.filter(({ method, sentAt }) => method === "POST" && sentAt > failedAt), 503, 0)

      // While the disk fails, a start fails too, and names the cause.
      const { code, stderr } = yield* Effect.flip(start(settings))
      assert.strictEqual(code, 1)
      assert.include(stderr, reason)
      rmSync(DISK_FAULT_FILE)
      yield* Load.assertStored(load.outcomes, EmbeddedDatabase.layer(DATA_DIR))
    })
)
