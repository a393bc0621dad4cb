import { assert, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { execFileSync } from "node:child_process"
import { appendFileSync, cpSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { dataDirectory, embeddedIn } from "../support/Databases.ts"
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
      const failedAt = performance.now()
      yield* until(() => service.stderr().includes(`"level":"FATAL"`))
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
      yield* Load.assertStored(load.outcomes, embeddedIn(DATA_DIR))
    })
)

const title = "The embedded service on a disk that is really full exits with a line that names it, and loses no pet"
it.live.skipIf(process.getuid?.() !== 0)(title, () =>
  Effect.gen(function*() {
    const disk = yield* temporaryDirectory
    yield* Effect.acquireRelease(
      Effect.sync(() => execFileSync("mount", ["-t", "tmpfs", "-o", "size=80m", "tmpfs", disk])),
      () => Effect.sync(() => execFileSync("umount", ["--lazy", disk]))
    )
    const DATA_DIR = join(disk, "data")
    cpSync(yield* dataDirectory, DATA_DIR, { recursive: true })
    const service = yield* start({ DATA_DIR })
    const { key } = yield* issue(service)
    const create = (count: number) =>
      Effect.replicateEffect(Load.request(service.address, key), count, { concurrency: 8 })
    const before = yield* create(100)
    const file = join(disk, "file")
    const fill = () => appendFileSync(file, Buffer.alloc(100_000))
    yield* Effect.ignore(Effect.forever(Effect.try({ try: fill, catch: () => "full" })))
    const meanwhile = yield* create(1_000)
    assert.strictEqual(yield* Effect.promise(() => service.exit), 1)
    const fatal = service.stderr().split("\n").find((line) => line.includes(`"level":"FATAL"`))
    for (const text of [DATA_DIR, "ENOSPC, the disk is full"]) assert.include(fatal, text)
    rmSync(file)
    yield* Load.assertStored([...before, ...meanwhile], embeddedIn(DATA_DIR))
  }))
