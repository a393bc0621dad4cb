import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { cpSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { codeBlocks, readPage, root } from "../support/Documents.ts"
import { run } from "../support/NpmPrograms.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

it.live("A copy with renamed pets compiles and passes the suites of the contract, the stores and the client", () =>
  Effect.gen(function*() {
    const copy = yield* temporaryDirectory
    const { code } = codeBlocks(readPage("CONTRIBUTING.md")).find(({ code }) => code.startsWith("rename=")) ??
      assert.fail()
    const files = yield* run(root, "git", ["ls-files", "--cached", "--others", "--exclude-standard"])
    for (const file of files.trim().split("\n")) cpSync(join(root, file), join(copy, file))
    symlinkSync(join(root, "node_modules"), join(copy, "node_modules"))
    yield* run(copy, "bash", ["-ec", `git init -q; git add -A\n${code}`])
    assert.match(yield* run(copy, "ls", ["src/orders"]), /^OrderRepository\.ts$/m)
    yield* run(copy, process.execPath, ["node_modules/typescript/bin/tsc"])
    const suites = ["test/api", "test/orders", "test/client", "test/http/Contract.test.ts"]
    yield* run(copy, process.execPath, ["node_modules/vitest/vitest.mjs", "run", ...suites])
  }))
