/** The layers of the sources, and which may import from which (CONTRIBUTING.md): the arrows point one way. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { basename, dirname, join, normalize } from "node:path"

const source = new URL("../src/", import.meta.url).pathname

const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"))

/** What `file` imports: paths below src/ of its own, names of packages. */
const importsOf = (file: string): ReadonlyArray<string> =>
  [...readFileSync(join(source, file), "utf8").matchAll(/^(?:import|export) .*?from "(.+?)"|^} from "(.+?)"/gm)].map(
    ([, whole, last]) => {
      const specifier = whole ?? last ?? ""
      return specifier.startsWith(".") ? normalize(join(dirname(file), specifier)) : specifier
    }
  )

/** The layers in order: each may import from itself and from those before it. */
const layers = [
  { name: "collections", is: (file: string) => file.startsWith("collections/") },
  { name: "the contract", is: (file: string) => file.startsWith("api/") },
  { name: "clients", is: (file: string) => file.startsWith("client/") },
  { name: "the command", is: (file: string) => file === "cli.ts" },
  { name: "settings, logs and metrics", is: (file: string) => /^(config|observability)\//.test(file) },
  { name: "the database", is: (file: string) => file.startsWith("database/") },
  { name: "services", is: (file: string) => /^(api-keys|pets|rate-limit)\//.test(file) },
  { name: "http", is: (file: string) => file.startsWith("http/") },
  { name: "entry points", is: (file: string) => ["main.ts", "testing.ts"].includes(file) }
]

const layerOf = (file: string): number => layers.findIndex(({ is }) => is(file))

/** The files that `file` imports, themselves or through others. */
const reachable = (file: string): ReadonlySet<string> => {
  const found = new Set<string>()
  const visit = (from: string): void => {
    for (const imported of importsOf(from).filter((name) => files.includes(name) && !found.has(name))) {
      found.add(imported)
      visit(imported)
    }
  }
  visit(file)
  return found
}

describe("The source files", () => {
  it("belong to a layer, and import from no later layer", () => {
    assert.isAbove(files.length, 30)
    for (const file of files) {
      assert.isAtLeast(layerOf(file), 0, file)
      for (const imported of importsOf(file).filter((name) => files.includes(name))) {
        assert.isAtMost(layerOf(imported), layerOf(file), `${file} imports ${imported}`)
      }
    }
  })

  it("import each other in no cycle, not even for types", () => {
    for (const file of files) assert.isFalse(reachable(file).has(file), file)
  })

  it("share no name: a name is in one folder", () => {
    const names = files.map((file) => basename(file))
    assert.deepStrictEqual(names.filter((name, index) => names.indexOf(name) < index), [])
  })

  it("beside src/main.ts, src/cli.ts and src/testing.ts lie in folders", () => {
    assert.deepStrictEqual(files.filter((file) => !file.includes("/")).toSorted(), ["cli.ts", "main.ts", "testing.ts"])
  })

  it("keep Node and SQL out of the contract and the clients, and SQL and services out of the command", () => {
    for (const file of files.filter((name) => layerOf(name) <= 2)) {
      const packages = importsOf(file).filter((name) => !files.includes(name))
      for (const name of packages) {
        assert.match(name, /^effect(\/crypto|\/encoding|\/http|\/http-api)?$/, `${file} imports ${name}`)
      }
    }
    for (const imported of importsOf("cli.ts")) {
      assert.isFalse(files.includes(imported) && layerOf(imported) > 3, `cli.ts imports ${imported}`)
      assert.notMatch(imported, /sql/)
    }
  })

  it("have no line that is wider than 120 characters, in comments neither", () => {
    for (const file of files) {
      const wide = readFileSync(join(source, file), "utf8").split("\n").filter((line) => line.length > 120)
      assert.deepStrictEqual(wide, [], file)
    }
  })

  it("ask for no address that a caller names: nothing in the service is a client of HTTP but its telemetry", () => {
    const clients = files.filter((file) => /HttpClient|\bfetch\(/.test(readFileSync(join(source, file), "utf8")))
    assert.deepStrictEqual(clients.filter((file) => !/^(client\/|cli\.ts|testing\.ts)/.test(file)), [
      "observability/Telemetry.ts"
    ])
  })
})
