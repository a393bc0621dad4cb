/** Which room may import from which (README, Contributing): the arrows point one way. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, normalize } from "node:path"

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

/** The rooms in the order of the arrows: each may import from itself and from those before it. */
const rooms = [
  { name: "the contract", is: (file: string) => /^api(\.ts|\/)/.test(file) },
  { name: "clients", is: (file: string) => /^(Client\.ts|client\/)/.test(file) },
  { name: "the command", is: (file: string) => file === "cli.ts" },
  {
    name: "the database, and what else knows no service",
    is: (file: string) =>
      /^(Database\.ts|database\/|migrations\/)/.test(file) ||
      ["Bag.ts", "DataDirectory.ts", "Logging.ts", "Oldest.ts", "Settings.ts", "Telemetry.ts"].includes(file)
  },
  {
    name: "services",
    is: (file: string) =>
      /^(AdminToken|ApiKeys|PetRepository|RateLimiter)\.ts|^(api-keys|pet-repository|rate-limit)\//.test(file)
  },
  { name: "http", is: (file: string) => file.startsWith("http/") },
  { name: "main", is: (file: string) => ["main.ts", "FirstKey.ts", "testing.ts"].includes(file) }
]

const roomOf = (file: string): number => rooms.findIndex(({ is }) => is(file))

describe("The rooms", () => {
  it("hold every file, and import from no later room", () => {
    assert.isAbove(files.length, 30)
    for (const file of files) {
      assert.isAtLeast(roomOf(file), 0, file)
      for (const imported of importsOf(file).filter((name) => files.includes(name))) {
        assert.isAtMost(roomOf(imported), roomOf(file), `${file} imports ${imported}`)
      }
    }
  })

  it("keep Node and SQL out of the contract and the clients, and SQL and services out of the command", () => {
    for (const file of files.filter((name) => roomOf(name) <= 1)) {
      const packages = importsOf(file).filter((name) => !files.includes(name))
      for (const name of packages) {
        assert.match(name, /^effect(\/crypto|\/encoding|\/http|\/http-api)?$/, `${file} imports ${name}`)
      }
    }
    for (const imported of importsOf("cli.ts")) {
      assert.isFalse(files.includes(imported) && roomOf(imported) > 1, `cli.ts imports ${imported}`)
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
    assert.deepStrictEqual(clients.filter((file) => !/^(Client\.ts|client\/|cli\.ts|testing\.ts)/.test(file)), [
      "Telemetry.ts"
    ])
  })
})
