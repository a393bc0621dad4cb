/** The package: packed, checked, installed into another project, compiled and run there. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile, type ExecFileException } from "node:child_process"
import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { rolldown } from "rolldown"
import { temporaryDirectory } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const bin = (name: string) => join(root, "node_modules/.bin", name)

/** Runs a program and returns its output. */
const run = (cwd: string, program: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.promise(() =>
    new Promise<string>((resolve, reject) => {
      const done = (error: ExecFileException | null, stdout: string, stderr: string) =>
        error === null ? resolve(stdout) : reject(new Error(`${program} ${args.join(" ")}\n${stdout}\n${stderr}`))
      execFile(program, [...args], { cwd, env: { ...process.env, ...env }, maxBuffer: 1e8 }, done)
    })
  )

describe("The package", () => {
  it.live(
    "is clean under publint and arethetypeswrong, and serves a project that installs it",
    () =>
      Effect.gen(function*() {
        const project = yield* temporaryDirectory
        yield* run(root, "npm", ["pack", "--pack-destination", project])
        const tarball = join(project, "petstore-service-1.0.0.tgz")
        yield* run(project, bin("publint"), [tarball, "--strict"])
        yield* run(project, bin("attw"), [tarball, "--profile", "esm-only"])

        const versions = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).devDependencies
        const dependencies = {
          "effect": versions.effect,
          "openapi-fetch": "0.17.0",
          // It installs an older TypeScript of its own.
          "openapi-typescript": "7.13.0",
          "petstore-service": `file:${tarball}`,
          "@types/node": versions["@types/node"]
        }
        writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", private: true, dependencies }))
        yield* run(project, "npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"])
        cpSync(join(root, "examples"), project, { recursive: true })

        const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
        yield* until(() => service.stdout().includes("curl"))
        const PETSTORE_API_KEY = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
        const env = { PETSTORE_URL: service.address, PETSTORE_API_KEY }
        yield* run(project, join(project, "node_modules/.bin/openapi-typescript"), [
          `${service.address}/openapi.json`,
          "-o",
          "schema.d.ts"
        ])

        const compilerOptions = {
          target: "ES2024",
          module: "NodeNext",
          moduleResolution: "NodeNext",
          lib: ["ES2024", "DOM"],
          types: ["node"],
          strict: true,
          exactOptionalPropertyTypes: true,
          noUncheckedIndexedAccess: true,
          noEmit: true,
          allowImportingTsExtensions: true,
          skipLibCheck: true
        }
        const include = ["*.ts", "inventory/*.ts"]
        writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include }))
        yield* run(project, bin("tsc"), ["-p", "."])

        assert.strictEqual(yield* run(project, process.execPath, ["generated.ts"], env), "Rex 1\n")
        assert.strictEqual(yield* run(project, process.execPath, ["derived.ts"], env), "1\n")
        assert.match(yield* run(project, process.execPath, ["fetch.ts"], env), /^\[\{"id":\d+,"name":"Rex"/)
        assert.strictEqual(yield* run(project, process.execPath, ["inventory/main.ts"], env), "category 1: 1\n")
        const tested = yield* run(project, process.execPath, ["--test", "inventory/Inventory.test.ts"])
        assert.match(tested, /pass 2\n/)
        assert.match(tested, /fail 0\n/)
      }),
    240_000
  )

  for (const entry of ["api/entry", "client/PetstoreClient"]) {
    it.live(`has nothing of Node or SQL in ${entry}, bundled for a browser`, () =>
      Effect.promise(async () => {
        const bundle = await rolldown({
          input: join(root, "src", `${entry}.ts`),
          platform: "browser",
          // An import that it cannot resolve is an error.
          external: []
        })
        const { output } = await bundle.generate({ format: "esm", minify: true })
        const modules = output.flatMap((chunk) => chunk.type === "chunk" ? chunk.moduleIds : [])
        assert.isAbove(modules.length, 20)
        for (const id of modules) {
          assert.notMatch(id, /^node:|platform-node|sql-pg|pglite|effect\/dist\/sql\/|src\/http\/|node_modules\/redis/)
        }
        for (const chunk of output) {
          if (chunk.type !== "chunk") continue
          assert.isEmpty([...chunk.imports, ...chunk.dynamicImports])
          console.info(`${entry}: ${(chunk.code.length / 1024).toFixed(0)} KiB, minified`)
        }
      }), 60_000)
  }
})
