import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import { once } from "node:events"
import { withChecksum } from "../../src/api/Secrets.ts"
import { defineCommandTests, Service } from "../command/CommandSuite.ts"
import { cli } from "../support/CommandRun.ts"
import { dataDirectory } from "../support/Databases.ts"
import { compileCache, runProgram, start, until } from "../support/Process.ts"

/** Starts a service that makes its admin token itself. */
const startService = Effect.gen(function*() {
  const DATA_DIR = yield* dataDirectory
  const { address, management } = yield* start({ DATA_DIR, ADMIN_TOKEN: "", LOG_LEVEL: "trace" })
  return { address, env: { DATA_DIR, PETSTORE_ADMIN_URL: management } }
})

/** Runs the command on a terminal, which `script` of util-linux opens, and answers a question. Returns the exit code. */
const ask = Effect.fnUntraced(function*(args: string, question: RegExp, answer: string) {
  const { env } = yield* Service
  const line = `stty cols 110 rows 30; exec ${process.execPath} ${cli} keys ${args}`
  const own = { PATH: process.env.PATH, SHELL: "/bin/sh", TERM: "xterm-256color", ...compileCache, ...env }
  const child = yield* runProgram("script", ["-qefc", line, "/dev/null"], { env: own })
  const closed = once(child, "close")
  let output = ""
  child.stdout?.on("data", (chunk: Buffer) => void (output += chunk.toString()))
  yield* until(() => question.test(output))
  child.stdin?.write(answer)
  return (yield* Effect.promise(() => closed))[0]
})

layer(Service.layer(startService), { excludeTestServices: true })("The petstore command", (it) => {
  defineCommandTests(it)

  it.effect("exits with 0 if nothing reads its list", () =>
    Effect.map(Service, ({ env }) => {
      const args = ["--norc", "-o", "pipefail", "-c", `${process.execPath} ${cli} keys list | true`]
      const { status, stderr } = spawnSync("bash", args, { env: { PATH: process.env.PATH, ...env } })
      assert.deepStrictEqual([status, String(stderr)], [0, ""])
    }))

  it.effect("asks on a terminal before it ends a secret, and replaces bidi control characters", () =>
    Effect.gen(function*() {
      const { json, text } = yield* Service
      const { id } = yield* json("issue --name a\u202Eb")
      assert.strictEqual(yield* ask(`revoke ${id}`, /Revoke .*cannot be undone/, "n\r"), 1)
      assert.strictEqual(yield* ask(`revoke ${id}`, /Revoke .*cannot be undone/, "\x03"), 130)
      assert.match(yield* text(`show ${id}`), /^name {7}a\uFFFDb\n[^]*^state {6}active$/m)
      assert.strictEqual(yield* ask(`rotate ${id} --grace 0`, /Rotate .*stop working now/, "n\r"), 1)
      assert.match(yield* text(`list --search ${id}`), / a\uFFFDb\n$/)
      for (const flags of ["--grace 1", "--yes"]) {
        assert.strictEqual(yield* ask(`rotate ${id} ${flags}`, /not be shown again/, ""), 0)
      }
      assert.strictEqual(yield* ask(`revoke ${id} -y`, /revoked/, ""), 0)
      assert.strictEqual(yield* ask("whose", /Secret/, `${withChecksum("0".repeat(32))}\r`), 1)
    }))
})
