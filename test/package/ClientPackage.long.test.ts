/** Tests the tarball of the client package: what it has, and projects that install it. They need the npm registry. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { execFile, type ExecFileException } from "node:child_process"
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { chromium } from "playwright-core"
import { rolldown } from "rolldown"
import ts from "typescript-5.9"
import { temporaryDirectory } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"
import { browser } from "../support/setup.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const bin = (name: string) => join(root, "node_modules/.bin", name)
const versions = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))

/** Runs a program and returns its output. */
const run = (cwd: string, program: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.promise(() =>
    new Promise<string>((resolve, reject) => {
      const done = (error: ExecFileException | null, stdout: string, stderr: string) =>
        error === null ? resolve(stdout) : reject(new Error(`${program} ${args.join(" ")}\n${stdout}\n${stderr}`))
      execFile(program, [...args], { cwd, env: { ...process.env, ...env }, maxBuffer: 1e8 }, done)
    })
  )

const runNode = (cwd: string, args: ReadonlyArray<string>, env?: Readonly<Record<string, string>>) =>
  run(cwd, process.execPath, args, env)

/** Makes a project of ES modules and installs its dependencies. */
const makeProject = Effect.fnUntraced(function*(dependencies: Readonly<Record<string, string>>) {
  const project = yield* temporaryDirectory
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", private: true, dependencies }))
  yield* run(project, "npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"])
  return project
})

/** The tarball, and a project that has nothing but it and `effect`. */
class Installed extends Context.Service<Installed, {
  readonly tarball: string
  readonly project: string
  readonly installed: string
}>()("test/package/Installed") {
  static readonly layer = Layer.effect(
    Installed,
    Effect.gen(function*() {
      const output = yield* run(root, "npm", ["run", "pack:client", "--", yield* temporaryDirectory])
      const tarball = output.trimEnd().split("\n").at(-1) ?? ""
      const project = yield* makeProject({
        effect: versions.dependencies.effect,
        "petstore-client": `file:${tarball}`
      })
      return { tarball, project, installed: join(project, "node_modules/petstore-client") }
    })
  )
}

/** Starts the service. Returns the variables that the clients read. */
const startService = Effect.gen(function*() {
  const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
  yield* until(() => service.stdout().includes("curl"))
  const PETSTORE_API_KEY = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
  return { PETSTORE_URL: service.address, PETSTORE_API_KEY }
})

const filesOf = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => statSync(join(folder, file)).isFile())

/** The examples of the package's README, which a stranger copies. */
const readmeExamples = (installed: string): ReadonlyArray<string> =>
  [...readFileSync(join(installed, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

/** Each compiler that the package supports, by name. */
const compilers = ["typescript", "typescript-5.9"].map((name) => {
  const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`)
  return { version: JSON.parse(readFileSync(manifest, "utf8")).version, file: join(manifest, "../bin/tsc") }
})

layer(Installed.layer, { timeout: 240_000, excludeTestServices: true })("The client package", (it) => {
  it.effect("is clean under publint and arethetypeswrong", () =>
    Effect.gen(function*() {
      const { project, tarball } = yield* Installed
      yield* run(project, bin("publint"), [tarball, "--strict"])
      yield* run(project, bin("attw"), [tarball, "--profile", "esm-only"])
    }), 120_000)

  it.effect("can be published", () =>
    Effect.gen(function*() {
      const { project, tarball } = yield* Installed
      assert.include(yield* run(project, "npm", ["publish", tarball, "--dry-run"]), "+ petstore-client@")
      yield* run(join(root, "package"), "npm", ["publish", "--dry-run"])
    }), 120_000)

  it.effect("has its build and its documents, of less than 1 MB", () =>
    Effect.gen(function*() {
      const { installed } = yield* Installed
      const files = filesOf(installed)
      const others = files.filter((file) => !/^dist\/.+(\.js|\.d\.ts)$/.test(file))
      assert.sameMembers(others, ["CHANGELOG.md", "LICENSE", "README.md", "package.json"])
      const bytes = files.reduce((total, file) => total + statSync(join(installed, file)).size, 0)
      console.info(`petstore-client: ${files.length} files, ${(bytes / 1e3).toFixed(0)} kB unpacked`)
      assert.isBelow(bytes, 1_000_000)
    }))

  it.effect("imports its own files and effect, names nothing of Node, and declares nothing global", () =>
    Effect.gen(function*() {
      const { installed } = yield* Installed
      const dist = join(installed, "dist")
      const files = filesOf(dist)
      for (const file of files) {
        // Declarations import `.ts`, which TypeScript resolves to `.d.ts`, as the declarations of effect do.
        const text = readFileSync(join(dist, file), "utf8").replaceAll(/\/\*.*?\*\/|^\s*\/\/.*$/gms, "")
        for (const [, name = ""] of text.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)["']([^"']+)["']/g)) {
          assert.match(
            name,
            /^\.{1,2}\/.+\.[jt]s$|^effect(\/(?!sql|persistence|cluster)\w[\w-]*)*$/,
            `${file}: ${name}`
          )
          if (name.startsWith(".")) assert.include(files, join(dirname(file), name.replace(/\.ts$/, ".d.ts")))
        }
        assert.notMatch(text, /\b(NodeJS|Buffer|setImmediate|process\.\w+)\b|node:/, file)
        assert.notMatch(text, /declare global|interface JSON\b|<reference/, file)
      }
    }))

  for (const { file, version } of compilers) {
    for (const [module, moduleResolution] of [["NodeNext", "NodeNext"], ["ESNext", "Bundler"]] as const) {
      it.effect(
        `compiles with TypeScript ${version} and ${moduleResolution}, with the checks of libraries`,
        () =>
          Effect.gen(function*() {
            const { installed, project } = yield* Installed
            const examples = readmeExamples(installed)
            assert.lengthOf(examples, 2)
            for (const [index, code] of examples.entries()) writeFileSync(join(project, `readme${index}.ts`), code)
            writeFileSync(join(project, "stranger.ts"), stranger)
            const compilerOptions = {
              target: "ES2024",
              module,
              moduleResolution,
              strict: true,
              skipLibCheck: false,
              outDir: "out"
            }
            writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }))
            yield* runNode(project, [file, "-p", "."])
          }),
        120_000
      )
    }
  }

  it.effect(
    "serves a project of a stranger, which calls the service and the service in memory",
    () =>
      Effect.gen(function*() {
        const { project } = yield* Installed
        const env = yield* startService
        writeFileSync(join(project, "stranger.ts"), stranger)
        assert.strictEqual(yield* runNode(project, ["stranger.ts"], env), "1 NotFound true\n1 NotFound true\n")
      }),
    120_000
  )

  it.effect("runs the examples of its README", () =>
    Effect.gen(function*() {
      const { installed, project } = yield* Installed
      const [calls = "", tests = ""] = readmeExamples(installed)
      writeFileSync(join(project, "calls.ts"), calls)
      writeFileSync(join(project, "tests.ts"), `${tests}\nawait Effect.runPromise(reportsUsedUpLimit)\n`)
      assert.match(yield* runNode(project, ["calls.ts"], yield* startService), /^1n\n\{ id: 1n,|^1n\n\{\n/)
      yield* runNode(project, ["tests.ts"])
    }), 120_000)

  it.effect(
    "shows in an editor what each method does, its errors and an example, and what each field is",
    () =>
      Effect.gen(function*() {
        const { project } = yield* Installed
        writeFileSync(join(project, "hovered.ts"), hovered)
        const documentation = hover(project)
        for (const name of documented.methods) {
          const { tags, text } = documentation(name)
          assert.match(text, /Fails with|cannot fail/, name)
          assert.include(tags, "example", name)
        }
        for (const name of documented.fields) assert.isNotEmpty(documentation(name).text, name)
      }),
    60_000
  )

  it.effect("runs the examples", () =>
    Effect.gen(function*() {
      const { tarball } = yield* Installed
      const project = yield* makeProject({
        effect: versions.dependencies.effect,
        "openapi-fetch": "0.17.0",
        // It installs an older TypeScript of its own.
        "openapi-typescript": "7.13.0",
        "petstore-client": `file:${tarball}`,
        "@types/node": versions.devDependencies["@types/node"]
      })
      cpSync(join(root, "examples"), project, { recursive: true })
      const env = yield* startService
      const generate = join(project, "node_modules/.bin/openapi-typescript")
      yield* run(project, generate, [`${env.PETSTORE_URL}/openapi.json`, "-o", "schema.d.ts"])

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
      for (const { file } of compilers) yield* runNode(project, [file, "-p", "."])

      assert.strictEqual(yield* runNode(project, ["generated.ts"], env), "Rex 1\n")
      assert.strictEqual(yield* runNode(project, ["derived.ts"], env), "1\n")
      assert.match(yield* runNode(project, ["fetch.ts"], env), /^\[\{"id":\d+,"name":"Rex"/)
      assert.strictEqual(yield* runNode(project, ["inventory/main.ts"], env), "category 1: 1\n")
      assert.match(
        yield* runNode(project, ["onward.ts"], env),
        /^\[\{"id":"1",.*\n\[\{"id":1,.*\n(\d) over RPC, \1 stored, the next page begins at the cursor \w+\n$/
      )
      const tested = yield* runNode(project, ["--test", "inventory/Inventory.test.ts"])
      assert.match(tested, /pass 2\n/)
      assert.match(tested, /fail 0\n/)
    }), 240_000)

  describe.skipIf(browser === undefined)("in Chromium", () => {
    it.effect("calls the service in memory", () =>
      Effect.gen(function*() {
        const { project } = yield* Installed
        writeFileSync(join(project, "page.js"), page)
        yield* Effect.promise(async () => {
          const bundle = await rolldown({ input: join(project, "page.js"), platform: "browser", external: [] })
          const { output: [{ code }] } = await bundle.generate({ format: "iife", name: "tested" })
          const running = await chromium.launch({
            executablePath: browser ?? "",
            args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
          })
          try {
            const tab = await running.newPage()
            // Browsers offer `crypto.randomUUID` only to pages of a secure origin, such as localhost.
            await tab.route("**/*", (route) => route.fulfill({ contentType: "text/html", body: "<title>test</title>" }))
            await tab.goto("http://localhost/")
            const outcome = await tab.evaluate(`(() => { ${code}; return tested.result })()`)
            assert.strictEqual(outcome, "1 NotFound true")
          } finally {
            await running.close()
          }
        })
      }), 120_000)
  })
})

/** Creates a pet and fails to find another. The last word says whether the largest id is exact. */
const program = `Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const rex = yield* petstore.create({ name: "Rex", categoryId: 9223372036854775807n })
  const error = yield* Effect.flip(petstore.get(rex.id + 1n))
  return [rex.id, error._tag, rex.categoryId === 9223372036854775807n].join(" ")
})`

/** A program without types of Node. It names everything that the entries export. */
const stranger = `
import { Console, Effect } from "effect"
import * as Api from "petstore-client/api"
import { AdminClient, type AnyError, PetstoreClient } from "petstore-client/client"
import { ApiKeys, layerMemory, layerTest, PetRepository, RateLimiter } from "petstore-client/testing"

const program: Effect.Effect<string, unknown, PetstoreClient> = ${program}
export const all = [Api.PetstoreApi, Api.AdminApi, Api.openApiDocument, Api.Pet, Api.exactJson, AdminClient]
export const services = [ApiKeys, layerMemory, PetRepository, RateLimiter]
export const describe = (error: AnyError): string => error.message
export const rejectsInput = Effect.flatMap(PetstoreClient, (petstore) =>
  // @ts-expect-error
  petstore.create({ name: 1, categoryId: 1n }))
// @ts-expect-error
export const rejectsOption = layerTest({ plan: "enterprise" })

await Effect.runPromise(Effect.provide(Effect.flatMap(program, Console.log), PetstoreClient.layerConfig()))
await Effect.runPromise(Effect.provide(Effect.flatMap(program, Console.log), layerTest()))
`

/** The names whose documentation an editor shows at the last part. */
const documented = {
  methods: ["PetstoreClient", "AdminClient"].flatMap((client) =>
    (client === "PetstoreClient"
      ? ["list", "all", "create", "get", "rateLimit"]
      : ["issue", "list", "all", "find", "rotate", "revoke", "unban"]).map((name) => `${client}.${name}`)
  ),
  fields: ["pet.id", "pet.name", "pet.categoryId", "pet.status"]
}

const hovered = `
import type { Pet } from "petstore-client/api"
import type * as Clients from "petstore-client/client"

declare const pet: Pet
declare const PetstoreClient: Clients.PetstoreClient["Service"]
declare const AdminClient: Clients.AdminClient["Service"]
export const names = [${[...documented.methods, ...documented.fields].join(", ")}]
`

/** Returns what an editor shows for each name in the file `hovered.ts` of a project. */
const hover = (project: string) => {
  const file = join(project, "hovered.ts")
  const service = ts.createLanguageService({
    fileExists: ts.sys.fileExists,
    readFile: ts.sys.readFile,
    directoryExists: ts.sys.directoryExists,
    getScriptFileNames: () => [file],
    getScriptVersion: () => "1",
    getScriptSnapshot: (name) => {
      const text = ts.sys.readFile(name)
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
    },
    getCurrentDirectory: () => project,
    getCompilationSettings: () => ({
      strict: true,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      target: ts.ScriptTarget.ES2024,
      types: []
    }),
    getDefaultLibFileName: (options) => ts.getDefaultLibFilePath(options)
  })
  return (name: string) => {
    const position = hovered.lastIndexOf(name) + name.indexOf(".") + 1
    const info = service.getQuickInfoAtPosition(file, position)
    return { text: ts.displayPartsToString(info?.documentation), tags: (info?.tags ?? []).map((tag) => tag.name) }
  }
}

/** The same program for a page. */
const page = `
import { Effect } from "effect"
import { PetstoreClient } from "petstore-client/client"
import { layerTest } from "petstore-client/testing"

export const result = Effect.runPromise(Effect.provide(${program}, layerTest()))
`
