/** Tests the installation with npm: without development dependencies, on the oldest Node that the service supports. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync } from "node:fs"
import { dirname, join } from "node:path"
import { root } from "../support/Documents.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { firstKey, send, start, stop } from "../support/Process.ts"
import { install } from "../support/Runtimes.ts"

describe("npm ci --omit=dev", () => {
  it.live(
    "installs at most 125 MB without a warning, and npm start serves requests on the machine's own Node 22",
    () =>
      Effect.gen(function*() {
        const node = (yield* install("node"))("node")
        const cwd = yield* temporaryDirectory
        for (const name of ["package.json", "package-lock.json", "src"]) {
          cpSync(join(root, name), join(cwd, name), { recursive: true })
        }
        const env = { ...process.env, PATH: `${dirname(node)}:/usr/local/bin:/usr/bin:/bin` }
        const run = (command: string) => execFileSync("sh", ["-c", command], { cwd, env, encoding: "utf8" })
        const output = run("node --version; npm ci --omit=dev 2>&1")
        assert.match(output, /^v22\./)
        assert.notMatch(output, /warn/i)
        assert.isBelow(Number.parseInt(run("du -sm node_modules")), 125)

        const service = yield* start({ PATH: env.PATH, HOME: cwd }, ["npm", "start"], cwd)
        assert.strictEqual((yield* send(`${service.address}/v1/pets`, yield* firstKey(service))).status, 200)
        assert.include((yield* send(service.management, "")).text, "The console is not built.")
        assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      }),
    360_000
  )
})
