/** Tests that the entries of the client package run in any runtime: they need nothing but `effect`. */
import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { rolldown } from "rolldown"

const root = fileURLToPath(new URL("../..", import.meta.url))
const source = join(root, "src")
const effect = join(root, "node_modules/effect/dist")

const readJson = (file: string) => JSON.parse(readFileSync(join(root, file), "utf8"))

/** Bundles an entry for browsers. Returns the ids of all modules, and what the modules of `src` import by name. */
const bundleEntry = async (entry: string) => {
  const names = new Set<string>()
  const bundle = await rolldown({
    input: join(source, entry),
    platform: "browser",
    // An import that it cannot resolve is an error.
    external: [],
    plugins: [{
      name: "names",
      resolveId(name, importer) {
        if (importer?.startsWith(source) === true && !name.startsWith(".")) names.add(name)
      }
    }]
  })
  const { output } = await bundle.generate({ format: "esm", minify: true })
  const chunks = output.filter((chunk) => chunk.type === "chunk")
  return { names, chunks, modules: chunks.flatMap(({ moduleIds }) => moduleIds) }
}

describe("The client package", () => {
  for (const entry of ["api/entry.ts", "client/Clients.ts", "package.ts", "testing.ts"]) {
    it(`imports only effect from ${entry} on, and nothing of Node or SQL, in a bundle for browsers`, async () => {
      const { chunks, modules, names } = await bundleEntry(entry)
      assert.isAbove(names.size, 2)
      for (const name of names) {
        assert.match(name, /^effect(\/\w[\w-]*)*$/)
        assert.notMatch(name, /^effect\/(sql|persistence|cluster)/)
      }
      assert.isAbove(modules.length, 100)
      for (const id of modules) {
        assert.isTrue([source, effect].some((folder) => id.startsWith(folder)) || id.includes("rolldown/runtime"), id)
        assert.notMatch(id, /effect\/dist\/(sql|persistence|cluster)\//)
      }
      for (const { code, dynamicImports, imports } of chunks) {
        assert.isEmpty([...imports, ...dynamicImports])
        console.info(`${entry}: ${(code.length / 1024).toFixed(0)} KiB, minified`)
      }
    }, 60_000)
  }

  it("has the version and the effect of the service, and no dependencies", () => {
    const service = readJson("package.json")
    const client = readJson("package/package.json")
    assert.isTrue(service.private)
    assert.isUndefined(service.exports)
    assert.strictEqual(client.version, service.version)
    assert.isUndefined(client.dependencies)
    assert.deepStrictEqual(client.peerDependencies, { effect: `^${service.dependencies.effect}` })
    assert.include(readFileSync(join(root, "package/CHANGELOG.md"), "utf8"), `## ${client.version}\n`)
  })
})
