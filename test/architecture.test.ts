import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { basename, dirname, join, normalize } from "node:path"

const source = new URL("../src/", import.meta.url).pathname
const contributing = readFileSync(join(source, "../CONTRIBUTING.md"), "utf8")

const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file))

const codeOf = (file: string): string => readFileSync(join(source, file), "utf8")

/** The imports of `file`: paths relative to src/ for the project's own modules, names for packages. */
const importsOf = (file: string): ReadonlyArray<string> =>
  [...codeOf(file).matchAll(/^(?:(?:import|export) .*?|} )from "(.+?)"/gm)].map(([, name = ""]) =>
    name.startsWith(".") ? normalize(join(dirname(file), name)) : name
  )

/** The folders and files in each row of the table. */
const layers = [...contributing.matchAll(/^\| ((?:`[\w/.-]+`(?:, )?)+) \|/gm)].map(([, row]) => row?.match(/[\w/.-]+/g))

/** The row of a file or a folder. */
const layerOf = (file: string): number =>
  layers.findIndex((names) => names?.some((name) => name.endsWith("/") ? file.startsWith(name) : file === name))

/** The files that `file` imports, directly or through other files. */
const reachable = (file: string, found = new Set<string>()): ReadonlySet<string> => {
  for (const imported of importsOf(file).filter((name) => files.includes(name) && !found.has(name))) {
    reachable(imported, found.add(imported))
  }
  return found
}

/** Returns the imports of packages that do not match `allowed`. */
const otherPackages = (each: Iterable<string>, allowed: RegExp) =>
  [...each].flatMap((file) =>
    importsOf(file).filter((name) => !files.includes(name) && !allowed.test(name)).map((name) => `${file}: ${name}`)
  )

describe("The source files", () => {
  it("are in the table of CONTRIBUTING.md, and import from no later row, and only the console from the console", () => {
    for (const file of files) {
      assert.isAtLeast(layerOf(file), 0, file)
      for (const imported of importsOf(file).filter((name) => files.includes(name))) {
        assert.isAtMost(layerOf(imported), layerOf(file), `${file} imports ${imported}`)
        if (imported.startsWith("console/")) assert.match(file, /^console\//, `${file} imports ${imported}`)
      }
    }
  })

  it("have unique names in all folders", () => {
    const byName = Map.groupBy(files, (file) => basename(file))
    assert.deepStrictEqual([...byName.values()].filter(({ length }) => length > 1), [])
  })

  it("have as many lines in each folder as README.md says, within a tenth", () => {
    const readme = readFileSync(join(source, "../README.md"), "utf8")
    const rows = [...readme.matchAll(/^\| ((?:`[\w-]+\/`(?:, )?)+) \| ([\d,]+) \|/gm)]
    assert.isAbove(rows.length, 5)
    for (const [, folders = "", stated = ""] of rows) {
      const ofRow = files.filter((file) => folders.includes(`\`${file.split("/")[0]}/\``))
      const lines = ofRow.reduce((sum, file) => sum + codeOf(file).split("\n").length - 1, 0)
      assert.approximately(lines, Number(stated.replace(",", "")), lines / 10, folders)
    }
  })

  it("import only effect in the contract, the clients and the client package, and no SQL in the command", () => {
    const entries = ["api/ApiExports.ts", "client/ClientExports.ts", "PackageExports.ts", "testing.ts"]
    const isOfClient = (file: string) => layerOf(file) <= layerOf("client/")
    const ofPackage = entries.flatMap((entry) => [entry, ...reachable(entry)])
    assert.isEmpty([
      ...otherPackages(ofPackage, /^effect(\/crypto|\/encoding|\/http|\/http-api|\/net)?$/),
      ...otherPackages(files.filter(isOfClient), /^effect(\/crypto|\/encoding|\/http|\/http-api)?$/),
      ...otherPackages(files.filter((file) => file.startsWith("console/")), /^(effect(\/[\w-]+)?|preact(\/hooks)?)$/),
      ...otherPackages(["cli.ts", ...reachable("cli.ts")], /^(?!.*sql)/)
    ])
  })

  it("import no other folder in Node's edge, whose entry reaches at most 12 files", () => {
    const edge = new Set(["node-server/NodeServer.ts", ...reachable("node-server/NodeServer.ts")])
    assert.isEmpty([...edge].filter((file) => !file.startsWith("node-server/")))
    assert.isAtMost(edge.size, 12)
  })

  it("of the parts, which CONTRIBUTING.md lists, reach no settings and no port, and have no name of the service", () => {
    const [, list = ""] = /^These folders are parts[^:]*: (.+?)\. /m.exec(contributing) ?? []
    const parts = list.match(/[\w-]+\//g) ?? []
    assert.isNotEmpty(parts)
    for (const file of files.filter((each) => parts.some((part) => each.startsWith(part)))) {
      const others = [...reachable(file)].filter((each) => /^(?:config|http|management)\//.test(each))
      assert.isEmpty(others, file)
      assert.notInclude(importsOf(file), "api/Brand.ts", file)
      assert.notInclude(codeOf(file), "\"petstore/", file)
    }
  })

  it("know no setting, no error of HTTP and no name of the service in the rooms of the database and of the limits", () => {
    const allowed = /^(?:database|eviction)\/|^observability\/ErrorChain\.ts$/
    const reachableFrom = (room: string) =>
      files.filter((file) => file.startsWith(room)).flatMap((file) => [...reachable(file)])
    assert.isEmpty(reachableFrom("database/").filter((file) => !allowed.test(file)))
    const others = reachableFrom("rate-limit/").filter((file) => !file.startsWith("rate-limit/"))
    assert.isEmpty(others.filter((file) => !allowed.test(file)))
  })

  it("are few in the parts that others take: the limiter on Redis, batches of statements, writes in the background", () => {
    for (
      const [entry, maxFiles] of [
        ["rate-limit/RedisRateLimiter.ts", 8],
        ["database/Batcher.ts", 2],
        ["database/StatementBatcher.ts", 5],
        ["database/WriteBehind.ts", 3]
      ] as const
    ) {
      assert.isAtMost(new Set([entry, ...reachable(entry)]).size, maxFiles, entry)
    }
  })

  it("speak of pets and name the service only in the pets' own files, and where the parts are put together", () => {
    const own = /^(?:pets|test-service|.*migrations)\/|(?:^(?:cli|main|resources|testing)|Brand|Exports|Settings)\.ts/
    // The column of all idempotency keys has the name of the first resource.
    // So do the names of migrations.
    const named =
      /"p[e]t_id"|^.*(?:"\d{4}_|\/migrations\/).*$|"petstore\/.*?"|Petstore(?:Api|Client|Command)\w*|PETSTORE_\w+/gm
    // `[e]`, because the commands of CONTRIBUTING.md that rename the pets in a copy must not change this pattern.
    const others = files.filter((file) => /(?<![a-z])p[e]t|P[e]t/.test(codeOf(file).replaceAll(named, "")))
    const ofPets = /(?:Pets|PetHandlers|PetstoreApi|PetstoreClient)\.ts$/
    assert.isEmpty(others.filter((file) => !own.test(file) && !ofPets.test(file)))
  })

  it("depend on exact versions of packages", () => {
    const { dependencies, devDependencies } = JSON.parse(codeOf("../package.json"))
    for (const version of Object.values<string>({ ...dependencies, ...devDependencies })) {
      assert.match(version, /^(?:npm:\w+@)?\d+\.\d+\.\d+$/)
    }
  })

  it("send no request to an address that a caller names: only the service's telemetry uses an HTTP client", () => {
    const clients = files.filter((file) => /HttpClient|\bfetch\(/.test(codeOf(file)))
    // The samples of `/docs` are texts.
    const allowed = /^(client|console|test-service)\/|^(cli|testing)\.ts|^http\/CodeSamples\.ts/
    const others = clients.filter((file) => !allowed.test(file))
    assert.deepStrictEqual(others, ["observability/Telemetry.ts"])
  })
})
