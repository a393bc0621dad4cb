/** Tests the installation with npm: without development dependencies, on the oldest Node that the service supports. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { cpSync } from "node:fs"
import { dirname, join } from "node:path"
import { root } from "../support/Documents.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"
import { until } from "../support/Process.ts"
import { install } from "../support/Runtimes.ts"

describe("npm ci --omit=dev", () => {
  it.live(
    "installs at most 125 MB without a warning, and npm start serves requests on the machine's own Node 22",
    () =>
      Effect.gen(function*() {
        const node = (yield* install("node"))("node")
        const directory = yield* temporaryDirectory
        for (const name of ["package.json", "package-lock.json", "src"]) {
          cpSync(join(root, name), join(directory, name), { recursive: true })
        }
        const env = { ...process.env, PATH: `${dirname(node)}:/usr/local/bin:/usr/bin:/bin` }
        const options = { cwd: directory, env, encoding: "utf8", timeout: 240_000 } as const
        const output = execFileSync("sh", ["-c", "node --version; npm ci --omit=dev 2>&1"], options)
        assert.match(output, /^v22\./)
        assert.notMatch(output, /warn/i)
        const megabytes = Number.parseInt(execFileSync("du", ["-sm", "node_modules"], options))
        assert.isBelow(megabytes, 125)

        const [port, management] = [yield* freePort, yield* freePort]
        const service = yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn("npm", ["start"], {
              cwd: directory,
              env: { ...env, PORT: String(port), MANAGEMENT_PORT: String(management) },
              stdio: ["ignore", "pipe", "inherit"]
            })
          ),
          (child) => Effect.sync(() => child.kill("SIGKILL"))
        )
        let stdout = ""
        service.stdout.on("data", (chunk: Buffer) => {
          stdout += chunk.toString()
        })
        yield* until(() => stdout.includes("curl"))
        const authorization = `Bearer ${/psk_\w+/.exec(stdout)?.[0]}`
        const response = yield* Effect.promise(() =>
          fetch(`http://127.0.0.1:${port}/v1/pets`, { headers: { authorization } })
        )
        assert.strictEqual(response.status, 200)
        const page = yield* Effect.promise(() => fetch(`http://127.0.0.1:${management}`).then((each) => each.text()))
        assert.include(page, "The console is not built.")
        service.kill("SIGTERM")
        assert.strictEqual(yield* Effect.promise(() => new Promise((resolve) => service.on("exit", resolve))), 0)
      }),
    360_000
  )
})
