/** Tests that each source file imports only from its own layer or an earlier one (CONTRIBUTING.md). */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { basename, dirname, join, normalize } from "node:path"

const source = new URL("../src/", import.meta.url).pathname

const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file))

/** Returns the code of a file. */
const codeOf = (file: string): string => readFileSync(join(source, file), "utf8")

/** The imports of `file`: paths relative to src/ for the project's own modules, names for packages. */
const importsOf = (file: string): ReadonlyArray<string> =>
  [...codeOf(file).matchAll(/^(?:import|export) .*?from "(.+?)"|^} from "(.+?)"/gm)].map(
    ([, whole, last]) => {
      const specifier = whole ?? last ?? ""
      return specifier.startsWith(".") ? normalize(join(dirname(file), specifier)) : specifier
    }
  )

/** The layers in order. A layer may import from itself and from the layers before it. */
const layers = [
  { name: "collections", is: (file: string) => file.startsWith("collections/") },
  { name: "the contract", is: (file: string) => file.startsWith("api/") },
  { name: "clients", is: (file: string) => file.startsWith("client/") },
  { name: "the console", is: (file: string) => file.startsWith("console/") },
  { name: "settings, logs and metrics", is: (file: string) => /^(config|observability)\//.test(file) },
  { name: "the command", is: (file: string) => file === "cli.ts" || file.startsWith("command/") },
  { name: "the database", is: (file: string) => file.startsWith("database/") },
  { name: "services", is: (file: string) => /^(api-keys|pets|rate-limit)\//.test(file) },
  { name: "http", is: (file: string) => file.startsWith("http/") },
  { name: "the service in memory", is: (file: string) => file.startsWith("test-service/") },
  { name: "entry points", is: (file: string) => ["main.ts", "package.ts", "testing.ts"].includes(file) }
]

const layerOf = (file: string): number => layers.findIndex(({ is }) => is(file))

/** The files that `file` imports, directly or through other files. */
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

  it("have no import cycle, not even of types", () => {
    for (const file of files) assert.isFalse(reachable(file).has(file), file)
  })

  it("have unique file names across all folders", () => {
    const names = files.map((file) => basename(file))
    assert.deepStrictEqual(names.filter((name, index) => names.indexOf(name) < index), [])
  })

  it("lie in folders, except the entries", () => {
    const entries = ["cli.ts", "main.ts", "package.ts", "testing.ts"]
    assert.deepStrictEqual(files.filter((file) => !file.includes("/")).toSorted(), entries)
  })

  it("of the console import the contract, the clients, effect and preact alone, and no other file imports them", () => {
    for (const file of files.filter((name) => name.startsWith("console/"))) {
      for (const name of importsOf(file)) {
        assert.match(
          name,
          /^(console|api|client)\/|^(effect(\/\w[\w-]*)?|preact(\/hooks)?)$/,
          `${file} imports ${name}`
        )
      }
    }
    for (const file of files.filter((name) => !name.startsWith("console/"))) {
      assert.isFalse(importsOf(file).some((name) => name.startsWith("console/")), file)
    }
  })

  it("do not import Node or SQL in the contract and the clients, nor SQL or services in the command", () => {
    for (const file of files.filter((name) => layerOf(name) <= 2)) {
      const packages = importsOf(file).filter((name) => !files.includes(name))
      for (const name of packages) {
        assert.match(name, /^effect(\/crypto|\/encoding|\/http|\/http-api)?$/, `${file} imports ${name}`)
      }
    }
    for (const imported of importsOf("cli.ts")) {
      assert.isFalse(files.includes(imported) && layerOf(imported) > layerOf("cli.ts"), `cli.ts imports ${imported}`)
      assert.notMatch(imported, /sql/)
    }
  })

  it("import only effect in the entries of the client package and in all files that these need, types included", () => {
    for (const entry of ["api/entry.ts", "client/Clients.ts", "package.ts", "testing.ts"]) {
      for (const file of [entry, ...reachable(entry)]) {
        const packages = importsOf(file).filter((name) => !files.includes(name))
        for (const name of packages) {
          assert.match(name, /^effect(\/crypto|\/encoding|\/http|\/http-api|\/net)?$/, `${file} imports ${name}`)
        }
      }
    }
  })

  it("have no line of more than 120 characters, comments included", () => {
    for (const file of files) {
      const wide = readFileSync(join(source, file), "utf8").split("\n").filter((line) => line.length > 120)
      assert.deepStrictEqual(wide, [], file)
    }
  })

  it("send no request to an address that a caller names: only the service's telemetry uses an HTTP client", () => {
    const clients = files.filter((file) => /HttpClient|\bfetch\(/.test(codeOf(file)))
    assert.deepStrictEqual(
      clients.filter((file) => !/^(client\/|console\/|test-service\/|cli\.ts|testing\.ts)/.test(file)),
      [
        "observability/Telemetry.ts"
      ]
    )
  })
})
