/**
 * Tests the tarball of the client package: what it has, projects that install it, the runtimes that its README names,
 * and the examples. It is packed once. Needs the npm registry, and Python for one example.
 */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript-5.9"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { launch } from "../support/Chromium.ts"
import {
  bin,
  bundleForBrowser,
  compile,
  compilers,
  Installed,
  makeProject,
  manifest,
  root,
  run,
  runNode,
  serveFiles,
  startService
} from "../support/ClientPackage.ts"
import { freePort } from "../support/Harness.ts"
import { install, startWorker } from "../support/Runtimes.ts"
import { browser } from "../support/setup.ts"

const filesOf = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => statSync(join(folder, file)).isFile())

/** The examples of the package's README, which a stranger copies. */
const readmeExamples = (installed: string): ReadonlyArray<string> =>
  [...readFileSync(join(installed, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

const suite = fileURLToPath(new URL("runtimes/ClientSuite.ts", import.meta.url))

/** A project with the tarball and the suite, and the arguments of the suite for a live service. */
class Suite extends Context.Service<Suite, {
  readonly project: string
  /** The origin of the page in Chromium. */
  readonly pageUrl: string
  /** Makes the arguments of one run. Each run has keys of its own. */
  readonly settings: (name: string) => Effect.Effect<string>
}>()("test/package/Suite") {
  static readonly layer = Layer.effect(
    Suite,
    Effect.gen(function*() {
      const { project } = yield* Installed
      cpSync(suite, join(project, "ClientSuite.ts"))
      // Every runtime of a server has `process.argv`.
      writeFileSync(
        join(project, "main.ts"),
        `import { runSuite } from "./ClientSuite.ts"
declare const process: { readonly argv: ReadonlyArray<string> }
console.log(JSON.stringify(await runSuite(JSON.parse(process.argv[2] ?? ""))))`
      )
      yield* compile(project, ["main.ts"], { noEmit: true, allowImportingTsExtensions: true })

      const page = yield* serveFiles({ "/": ["text/html", "<title>test</title>"] })
      const ADMIN_TOKEN = "adm_of_the_runtimes_of_the_client_package"
      const { service } = yield* startService({ ADMIN_TOKEN, CORS_ORIGINS: page })
      const admin = yield* Effect.provide(
        AdminClient,
        AdminClient.layer({ baseUrl: service.management, token: Redacted.make(ADMIN_TOKEN) })
      )
      const closedUrl = `http://127.0.0.1:${yield* freePort}`
      return {
        project,
        pageUrl: page,
        settings: (name) =>
          Effect.gen(function*() {
            const key = yield* admin.issue({ name, plan: "business" })
            const limited = yield* admin.issue({ name, plan: "enterprise", limits: { perMinute: 3, perDay: 100 } })
            return JSON.stringify({
              baseUrl: service.address,
              closedUrl,
              apiKey: Redacted.value(key.key),
              limitedKey: Redacted.value(limited.key),
              name
            })
          }).pipe(Effect.orDie)
      }
    })
  )
}

/** Fails if the report of a run has a test that did not pass. */
const assertPassed = (report: string, name: string): void => {
  const outcomes: Record<string, string> = JSON.parse(report)
  const passed = Object.entries(outcomes).filter(([, outcome]) => outcome === "passed")
  console.info(`${name}: ${passed.length} of ${Object.keys(outcomes).length} tests passed`)
  assert.lengthOf(passed, 6, report)
  assert.lengthOf(Object.keys(outcomes), 6)
}

/** The paths of the runtimes that this process does not run in. */
class Programs
  extends Context.Service<Programs, Effect.Success<ReturnType<typeof install>>>()("test/package/Programs")
{
  static readonly layer = Layer.effect(Programs, install("node", "bun", "deno", "workerd"))
}

const runtimes = [
  { name: "Node 22", program: "node", version: /^v22\.(?:19|20)\.0$/, args: [] },
  { name: "Bun", program: "bun", version: /^1\.4\.5$/, args: ["run"] },
  { name: "Deno", program: "deno", version: /^deno 2\.9\.5 /, args: ["run", "--allow-net"] }
] as const

const exampleOptions = {
  lib: ["ES2024", "DOM", "DOM.Iterable"],
  types: ["node"],
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: true
}

/** A project with the examples, compiled, and what the generators make of the OpenAPI document. */
class Project extends Context.Service<Project, { readonly path: string }>()("test/package/Project") {
  static readonly layer = Layer.effect(
    Project,
    Effect.gen(function*() {
      const { tarball } = yield* Installed
      const path = yield* makeProject({
        effect: manifest.dependencies.effect,
        "@hey-api/openapi-ts": "0.99.0",
        "openapi-fetch": "0.17.0",
        "openapi-typescript": "7.13.0",
        "petstore-client": `file:${tarball}`,
        // The generators need the API of this older compiler.
        "typescript": manifest.devDependencies["typescript-5.9"].replace("npm:typescript@", ""),
        "@types/node": manifest.devDependencies["@types/node"]
      }, ["--ignore-scripts"])
      cpSync(join(root, "examples"), path, { recursive: true })
      const { env } = yield* startService()
      const document = `${env.PETSTORE_URL}/openapi.json`
      const bin = join(path, "node_modules/.bin")
      yield* run(path, join(bin, "openapi-typescript"), [document, "-o", "schema.d.ts"])
      // The generator reads tsconfig.json to learn that imports have extensions.
      writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions: { moduleResolution: "NodeNext" } }))
      yield* run(path, join(bin, "openapi-ts"), ["-i", document, "-o", "generated"])
      return { path }
    })
  )
}

const createPets = (env: { readonly PETSTORE_URL: string; readonly PETSTORE_API_KEY: string }) =>
  Effect.promise(async () => {
    for (const name of ["Rex", "Ada"]) {
      await fetch(`${env.PETSTORE_URL}/v1/pets`, {
        method: "POST",
        headers: { "authorization": `Bearer ${env.PETSTORE_API_KEY}`, "content-type": "application/json" },
        body: JSON.stringify({ name, categoryId: 1, status: "available" })
      })
    }
  })

const packageAndPrograms = Layer.merge(Installed.layer, Programs.layer)

layer(packageAndPrograms, { timeout: 240_000, excludeTestServices: true })("The client package", (it) => {
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

  it.effect("has its build and its documents, of less than 1 MB, the version of the service, and no dependency", () =>
    Effect.gen(function*() {
      const { installed } = yield* Installed
      const files = filesOf(installed)
      const others = files.filter((file) => !/^dist\/.+(\.js|\.d\.ts)$/.test(file))
      assert.sameMembers(others, ["CHANGELOG.md", "LICENSE", "README.md", "package.json"])
      const bytes = files.reduce((total, file) => total + statSync(join(installed, file)).size, 0)
      assert.isBelow(bytes, 1_000_000)
      const { dependencies, peerDependencies, version } = JSON.parse(
        readFileSync(join(installed, "package.json"), "utf8")
      )
      assert.strictEqual(version, manifest.version)
      assert.isUndefined(dependencies)
      assert.deepStrictEqual(peerDependencies, { effect: `^${manifest.dependencies.effect}` })
      assert.include(readFileSync(join(installed, "CHANGELOG.md"), "utf8"), `## ${version}\n`)
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

  for (const [index, { file, version }] of compilers.entries()) {
    // The examples and the suite of the runtimes compile with NodeNext and both compilers.
    const [module, moduleResolution] = index === 0 ? ["NodeNext", "NodeNext"] : ["ESNext", "Bundler"]
    it.effect(
      `compiles with TypeScript ${version} and ${moduleResolution}, with the checks of libraries`,
      () =>
        Effect.gen(function*() {
          const { installed, project } = yield* Installed
          const examples = readmeExamples(installed)
          assert.lengthOf(examples, 8)
          for (const [number, code] of examples.entries()) {
            writeFileSync(join(project, `readme${number}.ts`), code)
          }
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
        for (const name of documented.fields) {
          assert.isNotEmpty(documentation(name).text, name)
        }
      }),
    60_000
  )

  it.effect.skipIf(browser === undefined)("calls the service in memory in Chromium", () =>
    Effect.gen(function*() {
      const { project } = yield* Installed
      writeFileSync(join(project, "page.js"), page)
      const code = yield* bundleForBrowser(join(project, "page.js"), { format: "iife", name: "tested" })
      const running = yield* launch()
      // Browsers offer `crypto.randomUUID` only to pages of a secure origin, such as 127.0.0.1.
      const origin = yield* serveFiles({ "/": ["text/html", "<title>test</title>"] })
      yield* Effect.promise(async () => {
        const tab = await running.newPage()
        await tab.goto(origin)
        assert.strictEqual(await tab.evaluate(`(() => { ${code}; return tested.result })()`), "1 NotFound true")
      })
    }), 120_000)

  it.layer(Suite.layer, { timeout: 240_000 })(
    "in a runtime",
    (it) => {
      it.effect("calls the service from Node 24", () =>
        Effect.gen(function*() {
          const { project, settings } = yield* Suite
          assert.match(process.version, /^v24\./)
          assertPassed(yield* run(project, process.execPath, ["main.ts", yield* settings("node24")]), "Node 24")
        }), 180_000)

      for (const { args, name, program, version } of runtimes) {
        it.effect(`calls the service from ${name}`, () =>
          Effect.gen(function*() {
            const { project, settings } = yield* Suite
            const file = (yield* Programs)(program)
            assert.match((yield* run(project, file, ["--version"])).trimEnd(), version)
            assertPassed(yield* run(project, file, [...args, "main.ts", yield* settings(program)]), name)
          }), 180_000)
      }

      it.effect.skipIf(browser === undefined)(
        "calls the service from a page of another origin in Chromium",
        () =>
          Effect.gen(function*() {
            const { pageUrl, project, settings } = yield* Suite
            const code = yield* bundleForBrowser(join(project, "ClientSuite.ts"), { format: "iife", name: "suite" })
            const running = yield* launch()
            const argument = yield* settings("chromium")
            const report = yield* Effect.promise(async () => {
              const tab = await running.newPage()
              await tab.goto(pageUrl)
              return tab.evaluate(
                `(async () => { ${code}; return JSON.stringify(await suite.runSuite(${argument})) })()`
              )
            })
            assertPassed(String(report), "Chromium")
          }),
        180_000
      )
    }
  )

  it.layer(Project.layer, { timeout: 300_000 })(
    "with its examples",
    (it) => {
      it.effect("compile with each supported compiler", () =>
        Effect.gen(function*() {
          const { path } = yield* Project
          yield* compile(path, [
            "derived.ts",
            "generated.ts",
            "onward.ts",
            "inventory/*.ts",
            "browser/*.ts",
            "worker.ts"
          ], {
            ...exampleOptions,
            noEmit: true,
            allowImportingTsExtensions: true
          })
        }), 120_000)

      it.effect("run in Node", () =>
        Effect.gen(function*() {
          const { path } = yield* Project
          const { env } = yield* startService()
          assert.strictEqual(yield* runNode(path, ["generated.ts"], env), "Rex 1\n")
          assert.strictEqual(yield* runNode(path, ["derived.ts"], env), "1\n")
          assert.strictEqual(yield* runNode(path, ["inventory/main.ts"], env), "category 1: 1\n")
          assert.match(
            yield* runNode(path, ["onward.ts"], env),
            /^\[\{"id":"1",.*\n\[\{"id":1,.*\n(\d) over RPC, \1 stored, the next page begins at the cursor \w+\n$/
          )
          const tested = yield* runNode(path, ["--test", "inventory/Inventory.test.ts"])
          assert.match(tested, /pass 2\n/)
          assert.match(tested, /fail 0\n/)
        }), 120_000)

      it.effect("keep all digits without a client, in JavaScript and in Python", () =>
        Effect.gen(function*() {
          const { path } = yield* Project
          const { env } = yield* startService()
          assert.strictEqual(yield* runNode(path, ["fetch.js"], env), "1n Tom 9223372036854775807n\n")
          assert.strictEqual(
            yield* run(path, "python3", ["pets.py"], env),
            "1 Tom 9223372036854775807\n2 Kit 9223372036854775807\n"
          )
        }), 120_000)

      it.effect(
        "call the service with a client of @hey-api/openapi-ts, which rounds integers beyond 2^53",
        () =>
          Effect.gen(function*() {
            const { path } = yield* Project
            yield* compile(path, ["hey-api.ts", "generated/**/*.ts"], {
              ...exampleOptions,
              // The generated code does not compile with it.
              exactOptionalPropertyTypes: false,
              outDir: "out"
            })
            const { env } = yield* startService()
            assert.strictEqual(yield* runNode(path, ["out/hey-api.js"], env), "Rex 1\ntrue 9007199254740992\n")
          }),
        120_000
      )

      it.effect("serve pets from Deno", () =>
        Effect.gen(function*() {
          const { path } = yield* Project
          const deno = (yield* Programs)("deno")
          const { env } = yield* startService()
          yield* createPets(env)
          yield* run(path, deno, ["check", "deno.ts"])
          const port = String(yield* freePort)
          const args = ["run", "--allow-net", "--allow-env", "deno.ts"]
          yield* Effect.forkScoped(run(path, deno, args, { ...env, PORT: port }))
          const text = yield* Effect.promise(async () => {
            while (true) {
              const response = await fetch(`http://127.0.0.1:${port}`).catch(() => undefined)
              if (response !== undefined) return response.text()
              await new Promise((resolve) => setTimeout(resolve, 50))
            }
          })
          assert.strictEqual(text, "Rex\nAda\n")
        }), 120_000)

      it.effect(
        "serve pets from workerd, to ten requests at once that meet a cold isolate",
        () =>
          Effect.gen(function*() {
            const { path } = yield* Project
            const { env } = yield* startService()
            yield* createPets(env)
            const code = yield* bundleForBrowser(join(path, "worker.ts"), { format: "esm" })
            const workerd = (yield* Programs)("workerd")
            const get = (url: string) =>
              Effect.promise(async () => {
                const response = await fetch(url)
                return { status: response.status, body: await response.json() }
              })
            const pets = { status: 200, body: [{ id: "1", name: "Rex" }, { id: "2", name: "Ada" }] }
            const url = yield* startWorker(workerd, code, env)
            const responses = yield* Effect.replicateEffect(get(url), 10, { concurrency: "unbounded" })
            for (const response of responses) assert.deepStrictEqual(response, pets)
            const unauthorized = yield* startWorker(workerd, code, { ...env, PETSTORE_API_KEY: "psk_unknown" })
            const rejected = yield* get(unauthorized)
            assert.strictEqual(rejected.status, 502)
            assert.deepInclude(rejected.body, { error: "InvalidApiKey" })
          }),
        120_000
      )

      it.effect.skipIf(browser === undefined)("show pets in a page of another origin", () =>
        Effect.gen(function*() {
          const { path } = yield* Project
          const origin = yield* serveFiles({
            "/": ["text/html", readFileSync(join(path, "browser/index.html"), "utf8")],
            "/page.js": ["text/javascript", yield* bundleForBrowser(join(path, "browser/page.ts"), { format: "esm" })]
          })
          const { env } = yield* startService({ CORS_ORIGINS: origin })
          yield* createPets(env)
          const running = yield* launch()
          yield* Effect.promise(async () => {
            const tab = await running.newPage()
            await tab.goto(origin)
            const show = async (key: string, outcome: string) => {
              await tab.getByLabel("Service").fill(env.PETSTORE_URL)
              await tab.getByLabel("API key").fill(key)
              await tab.getByRole("button").click()
              await tab.getByText(outcome).waitFor()
              return tab.locator("li").allInnerTexts()
            }
            assert.deepStrictEqual(await show(env.PETSTORE_API_KEY, "Complete"), ["Rex (1)", "Ada (2)"])
            assert.isEmpty(await show("psk_unknown", "unknown, expired or revoked"))
          })
        }), 120_000)
    }
  )
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
