/** Tests the client package in the runtimes that its README names, against a live service. Needs the npm registry. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { cpSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { AdminClient } from "../../src/client/AdminClient.ts"
import {
  bundleForBrowser,
  compile,
  Installed,
  launchBrowser,
  run,
  serveFiles,
  startService
} from "../support/ClientPackage.ts"
import { freePort } from "../support/Harness.ts"
import { Programs } from "../support/Runtimes.ts"
import { browser } from "../support/setup.ts"

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

const runtimes = [
  { name: "Node 22", program: "node", version: /^v22\.(?:19|20)\.0$/, args: [] },
  { name: "Bun", program: "bun", version: /^1\.4\.5$/, args: ["run"] },
  { name: "Deno", program: "deno", version: /^deno 2\.9\.5 /, args: ["run", "--allow-net"] }
] as const

const layers = Layer.mergeAll(Programs.layer, Suite.layer).pipe(Layer.provide(Installed.layer))

// The tests are concurrent because each waits for the end of a minute.
const options = { timeout: 240_000, excludeTestServices: true, concurrent: true }

layer(layers, options)("The client package", (it) => {
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
        const file = (yield* Programs)[program]
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
        const running = yield* launchBrowser
        const argument = yield* settings("chromium")
        const report = yield* Effect.promise(async () => {
          const tab = await running.newPage()
          await tab.goto(pageUrl)
          return tab.evaluate(`(async () => { ${code}; return JSON.stringify(await suite.runSuite(${argument})) })()`)
        })
        assertPassed(String(report), "Chromium")
      }),
    180_000
  )
})
