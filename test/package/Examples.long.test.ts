/** Tests that the examples compile and run in a project of a stranger. They need the npm registry. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { cpSync } from "node:fs"
import { join } from "node:path"
import {
  compile,
  Installed,
  makeProject,
  manifest,
  root,
  run,
  runNode,
  startService
} from "../support/ClientPackage.ts"

layer(Installed.layer, { timeout: 240_000, excludeTestServices: true })("The examples", (it) => {
  it.effect("run in Node", () =>
    Effect.gen(function*() {
      const { tarball } = yield* Installed
      const project = yield* makeProject({
        effect: manifest.dependencies.effect,
        "openapi-fetch": "0.17.0",
        // It installs an older TypeScript of its own.
        "openapi-typescript": "7.13.0",
        "petstore-client": `file:${tarball}`,
        "@types/node": manifest.devDependencies["@types/node"]
      })
      cpSync(join(root, "examples"), project, { recursive: true })
      const { env } = yield* startService()
      const generate = join(project, "node_modules/.bin/openapi-typescript")
      yield* run(project, generate, [`${env.PETSTORE_URL}/openapi.json`, "-o", "schema.d.ts"])

      yield* compile(project, ["*.ts", "inventory/*.ts"], {
        lib: ["ES2024", "DOM"],
        types: ["node"],
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        noEmit: true,
        allowImportingTsExtensions: true,
        skipLibCheck: true
      })

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
})
