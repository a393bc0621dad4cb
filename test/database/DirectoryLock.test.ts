import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { copyFileSync, existsSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { compileCache, killChild } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Without the options of the test runner, and with compiled code, a process starts in a third of the time. */
const env = { ...process.env, ...compileCache }
const program = fileURLToPath(new URL("../support/LockHolder.ts", import.meta.url))

const holder = fc.constantFrom(0, 1)
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ action: fc.constant("acquire"), by: holder }) },
  { weight: 2, arbitrary: fc.record({ action: fc.constantFrom("release", "delete", "replace"), by: holder }) },
  { weight: 1, arbitrary: fc.record({ action: fc.constant("crash"), by: holder }) }
)

it.live("One process holds the lock of a directory, in any order of starts, ends, crashes and changes of the file", () =>
  Effect.gen(function*() {
    const directory = yield* temporaryDirectory
    const file = join(directory, "lock")
    const processes: Array<ChildProcess | undefined> = [undefined, undefined]
    yield* Effect.addFinalizer(() => Effect.forEach(processes, killChild))
    const start = async (index: number): Promise<ChildProcess> => {
      const child = processes[index] ?? fork(program, [directory], { env, execArgv: [] })
      if (processes[index] === undefined) await once(child, "message")
      return processes[index] = child
    }
    const ask = async (index: number, action: string): Promise<unknown> => {
      const child = await start(index)
      const reply = once(child, "message")
      child.send(action)
      return (await reply)[0]
    }

    const run = fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 12 }), async (steps) => {
      rmSync(file, { force: true })
      /** The lock file that each process holds, and the one in the directory. */
      const held: Array<number | undefined> = [undefined, undefined]
      let [current, last]: [number | undefined, number] = [undefined, 0]
      for (const { action, by } of steps) {
        if (action === "acquire") {
          if (held[by] !== undefined) continue
          current ??= ++last
          const expected = held[1 - by] === current ? "DataDirectoryInUse" : "acquired"
          assert.strictEqual(await ask(by, "acquire"), expected)
          if (expected === "acquired") held[by] = current
        } else if (action === "release") {
          await ask(by, "release")
          held[by] = undefined
        } else if (action === "crash") {
          const child = await start(by)
          const end = once(child, "exit")
          child.kill("SIGKILL")
          await end
          processes[by] = held[by] = undefined
        } else if (current !== undefined) {
          if (action === "delete") rmSync(file)
          else {
            copyFileSync(file, `${file}.new`)
            renameSync(`${file}.new`, file)
          }
          current = action === "delete" ? undefined : ++last
        }
        for (const index of [0, 1]) {
          const isHeld = held[index] !== undefined && held[index] === current
          assert.strictEqual(await ask(index, "check"), String(isHeld))
        }
        assert.strictEqual(existsSync(file), current !== undefined)
      }
      for (const index of [0, 1]) await ask(index, "release")
      // A released lock is free for the other process.
      for (const index of [0, 1]) {
        assert.deepStrictEqual([await ask(index, "acquire"), await ask(index, "release")], ["acquired", "released"])
      }
    })
    yield* Effect.promise(() => fc.assert(run, { numRuns: 12, seed: 1 }))
  }))
