/** Tests that the examples compile and run in a project of a stranger. Needs the npm registry and Python. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import {
  bundleForBrowser,
  compile,
  Installed,
  launchBrowser,
  makeProject,
  manifest,
  root,
  run,
  runNode,
  serveFiles,
  startService
} from "../support/ClientPackage.ts"
import { freePort } from "../support/Harness.ts"
import { Programs } from "../support/Runtimes.ts"
import { browser } from "../support/setup.ts"

const compilerOptions = {
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

const layers = Layer.mergeAll(Project.layer, Programs.layer).pipe(Layer.provide(Installed.layer))

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

layer(layers, { timeout: 300_000, excludeTestServices: true })("The examples", (it) => {
  it.effect("compile with each supported compiler", () =>
    Effect.gen(function*() {
      const { path } = yield* Project
      yield* compile(path, ["derived.ts", "generated.ts", "onward.ts", "inventory/*.ts", "browser/*.ts", "worker.ts"], {
        ...compilerOptions,
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
          ...compilerOptions,
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
      const { deno } = yield* Programs
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

  it.effect("serve pets from a worker in one file", () =>
    Effect.gen(function*() {
      const { path } = yield* Project
      const { env } = yield* startService()
      yield* createPets(env)
      const code = yield* bundleForBrowser(join(path, "worker.ts"), { format: "esm" })
      console.info(`worker: ${(code.length / 1024).toFixed(0)} KiB`)
      writeFileSync(join(path, "worker.js"), code)
      const { default: worker } = yield* Effect.promise(() => import(pathToFileURL(join(path, "worker.js")).href))
      const call = (PETSTORE_API_KEY: string) =>
        Effect.promise(async () => {
          const response = await worker.fetch(new Request("https://worker.example"), { ...env, PETSTORE_API_KEY })
          return [response.status, await response.json()]
        })
      assert.deepStrictEqual(yield* call(env.PETSTORE_API_KEY), [200, [{ id: "1", name: "Rex" }, {
        id: "2",
        name: "Ada"
      }]])
      const [status, { error }] = yield* call("psk_unknown")
      assert.deepStrictEqual([status, error], [502, "InvalidApiKey"])
    }), 120_000)

  it.effect.skipIf(browser === undefined)("show pets in a page of another origin", () =>
    Effect.gen(function*() {
      const { path } = yield* Project
      const origin = yield* serveFiles({
        "/": ["text/html", readFileSync(join(path, "browser/index.html"), "utf8")],
        "/page.js": ["text/javascript", yield* bundleForBrowser(join(path, "browser/page.ts"), { format: "esm" })]
      })
      const { env } = yield* startService({ CORS_ORIGINS: origin })
      yield* createPets(env)
      const running = yield* launchBrowser
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
})
