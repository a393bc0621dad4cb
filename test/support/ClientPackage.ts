/** The tarball of the client package, projects that install it, and a service for them. They need the npm registry. */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { execFile, type ExecFileException } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { rolldown } from "rolldown"
import { readPage, root } from "./Documents.ts"
import { dataDirectory, temporaryDirectory } from "./Harness.ts"
import { serve } from "./HttpServer.ts"
import { firstKey, start } from "./Process.ts"

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
