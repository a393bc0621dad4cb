/** Tests the tarball of the client package: what it has, and projects that install it. They need the npm registry. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import ts from "typescript-5.9"
import {
  bin,
  bundleForBrowser,
  compilers,
  Installed,
  launchBrowser,
  root,
  run,
  runNode,
  serveFiles,
  startService
} from "../support/ClientPackage.ts"
import { browser } from "../support/setup.ts"

const filesOf = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => statSync(join(folder, file)).isFile())

/** The examples of the package's README, which a stranger copies. */
const readmeExamples = (installed: string): ReadonlyArray<string> =>
  [...readFileSync(join(installed, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

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
            assert.lengthOf(examples, 8)
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
        const { env } = yield* startService()
        writeFileSync(join(project, "stranger.ts"), stranger)
        assert.strictEqual(yield* runNode(project, ["stranger.ts"], env), "1 NotFound true\n1 NotFound true\n")
      }),
    120_000
  )

  it.effect("runs the examples of its README", () =>
    Effect.gen(function*() {
      const { installed, project } = yield* Installed
      const ADMIN_TOKEN = "adm_of_the_examples_of_the_client_package"
      const { env, service } = yield* startService({ ADMIN_TOKEN })
      const [calls = "", keys = "", ...others] = readmeExamples(installed)
      writeFileSync(join(project, "calls.ts"), calls)
      assert.match(yield* runNode(project, ["calls.ts"], env), /^1n\n\{ id: 1n,|^1n\n\{\n/)
      writeFileSync(join(project, "keys.ts"), keys)
      const adminEnv = { PETSTORE_ADMIN_URL: service.management, ADMIN_TOKEN }
      assert.match(yield* runNode(project, ["keys.ts"], adminEnv), /^shop pro\n0\nshop true\n$/m)
      const tests = others.flatMap((code) => {
        const [, name] = /^export const (\w+) = Effect/m.exec(code) ?? []
        return name === undefined ? [] : [`${code}\nawait Effect.runPromise(${name})\n`]
      })
      assert.lengthOf(tests, 4)
      for (const [index, code] of tests.entries()) {
        writeFileSync(join(project, `tests${index}.ts`), code)
        yield* runNode(project, [`tests${index}.ts`])
      }
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

  it.effect.skipIf(browser === undefined)("calls the service in memory in Chromium", () =>
    Effect.gen(function*() {
      const { project } = yield* Installed
      writeFileSync(join(project, "page.js"), page)
      const code = yield* bundleForBrowser(join(project, "page.js"), { format: "iife", name: "tested" })
      const running = yield* launchBrowser
      // Browsers offer `crypto.randomUUID` only to pages of a secure origin, such as 127.0.0.1.
      const origin = yield* serveFiles({ "/": ["text/html", "<title>test</title>"] })
      yield* Effect.promise(async () => {
        const tab = await running.newPage()
        await tab.goto(origin)
        assert.strictEqual(await tab.evaluate(`(() => { ${code}; return tested.result })()`), "1 NotFound true")
      })
    }), 120_000)
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
import { ApiKeys, layerMemory, layerService, layerTest, PetRepository, RateLimiter } from "petstore-client/testing"

const program: Effect.Effect<string, unknown, PetstoreClient> = ${program}
export const all = [Api.PetstoreApi, Api.AdminApi, Api.openApiDocument, Api.Pet, Api.exactJson, AdminClient]
export const services = [ApiKeys, layerMemory, layerService, PetRepository, RateLimiter]
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
      : ["issue", "list", "all", "get", "update", "rotate", "revoke", "unban", "audit", "auditAll"]).map((name) =>
        `${client}.${name}`
      )
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
    const position = hovered.search(new RegExp(`${name}\\b`)) + name.indexOf(".") + 1
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
