/**
 * Tests the tarball of the client package: what it has, projects that install it, the runtimes that its README names,
 * and the examples. It is packed once. Needs the npm registry, and Python for one example.
 */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { cpSync, existsSync, globSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import { newerService } from "../client/NewerService.ts"
import { launch } from "../support/Browser.ts"
import { dataDirectory } from "../support/Databases.ts"
import { codeBlocks, readPage, root } from "../support/Documents.ts"
import { type Environment, install, makeProject, run } from "../support/NpmPrograms.ts"
import { adminToken, firstKey, runProgram, send, serve, start, untilListening } from "../support/Process.ts"
import { browser } from "../support/setup.ts"
import { freePort, temporaryDirectory } from "../support/Temporary.ts"

const manifest = JSON.parse(readPage("package.json"))
const { dependencies: { effect }, devDependencies } = manifest

const runNode = (cwd: string, args: ReadonlyArray<string>, env?: Environment) => run(cwd, process.execPath, args, env)

/** Starts the service with pets of these names. Returns the variables that the clients read. */
const startService = Effect.fnUntraced(function*(...names: ReadonlyArray<string>) {
  const service = yield* start({ DATA_DIR: yield* dataDirectory, CORS_ORIGINS: "*" })
  const key = yield* firstKey(service)
  for (const name of names) {
    yield* send(`${service.address}/v1/pets`, key, "POST", { name, categoryId: 1, status: "available" })
  }
  const admin = { PETSTORE_ADMIN_URL: service.management, ADMIN_TOKEN: adminToken }
  return { PETSTORE_URL: service.address, PETSTORE_API_KEY: key, ...admin }
})

/** The tarball, a project that has nothing but it and `effect`, and the paths of the runtimes other than this one. */
const makeInstalled = Effect.gen(function*() {
  const output = yield* run(root, "npm", ["run", "pack:client", "--", yield* temporaryDirectory])
  const tarball = output.trimEnd().split("\n").at(-1) ?? ""
  const project = yield* makeProject({ effect, "petstore-client": `file:${tarball}` })
  const programs = yield* install("node", "bun", "deno", "workerd")
  return { tarball, project, installed: join(project, "node_modules/petstore-client"), programs }
})
const Installed = Context.Service<Effect.Success<typeof makeInstalled>>("test/package/Installed")

/** A project with the examples and what the generators make of the OpenAPI document, and a service with two pets. */
const makeExamples = Effect.gen(function*() {
  const generators = { "@hey-api/openapi-ts": "0.99.0", "openapi-fetch": "0.17.0", "openapi-typescript": "7.13.0" }
  // The generators need the API of this older compiler.
  const typescript = devDependencies["typescript-5.9"].replace("npm:typescript@", "")
  const own = { effect, typescript, "@types/node": devDependencies["@types/node"] }
  const client = { "petstore-client": `file:${(yield* Installed).tarball}` }
  const path = yield* makeProject({ ...generators, ...own, ...client }, ["--ignore-scripts"])
  cpSync(join(root, "examples"), path, { recursive: true })
  const env = yield* startService("Rex", "Ada")
  const document = `${env.PETSTORE_URL}/openapi.json`
  const generate = (name: string, ...args: ReadonlyArray<string>) => run(path, `node_modules/.bin/${name}`, args)
  yield* generate("openapi-typescript", document, "-o", "schema.d.ts")
  // The generator reads tsconfig.json to learn that imports have extensions.
  writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions: { moduleResolution: "NodeNext" } }))
  yield* generate("openapi-ts", "-i", document, "-o", "generated")
  return { path, env }
})
const Examples = Context.Service<Effect.Success<typeof makeExamples>>("test/package/Examples")

const compile = (project: string, include: ReadonlyArray<string>, own: object, compiler = "typescript") => {
  const options = { target: "ES2024", module: "NodeNext", moduleResolution: "NodeNext", strict: true }
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: { ...options, ...own }, include }))
  const manifest = createRequire(import.meta.url).resolve(`${compiler}/package.json`)
  return runNode(project, [join(manifest, "../bin/tsc"), "-p", "."])
}

const bundleForBrowser = (input: string) =>
  Effect.promise(async () => {
    const bundle = await rolldown({ input, platform: "browser", external: [] })
    const { output: [{ code, dynamicImports, imports }] } = await bundle.generate({ format: "esm", minify: true })
    assert.isEmpty([...imports, ...dynamicImports])
    return code
  })

/** Opens a page of Chromium with an origin of its own, which has the files by path, with their content types. */
const openPage = Effect.fnUntraced(function*(files: Readonly<Record<string, readonly [type: string, body: string]>>) {
  // Browsers offer `crypto.randomUUID` only to pages of a secure origin, such as 127.0.0.1.
  const origin = yield* serve(({ url = "/" }, response) => {
    const [type, body] = files[url] ?? ["text/plain", ""]
    response.writeHead(files[url] === undefined ? 404 : 200, { "content-type": type }).end(body)
  })
  const running = yield* launch
  const page = yield* Effect.promise(() => running.newPage())
  yield* Effect.promise(() => page.goto(origin))
  return page
})

/** Starts workerd with the module `code` as a worker and `env` as its bindings. Returns its URL. */
const startWorker = Effect.fnUntraced(function*(workerd: string, code: string, env: Environment) {
  const cwd = yield* temporaryDirectory
  const port = yield* freePort
  const bindings = Object.entries(env).map(([name, text]) => `(name = "${name}", text = "${text}")`).join(", ")
  writeFileSync(join(cwd, "worker.js"), code)
  const modules = `[(name = "worker", esModule = embed "worker.js")]`
  const worker = `(modules = ${modules}, compatibilityDate = "2026-07-01", bindings = [${bindings}])`
  const services = `(name = "main", worker = ${worker}), (name = "internet", network = (allow = ["private", "public"]))`
  const sockets = `(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")`
  const config = `const config :Workerd.Config = (services = [${services}], sockets = [${sockets}]);`
  writeFileSync(join(cwd, "config.capnp"), `using Workerd = import "/workerd/workerd.capnp";\n${config}`)
  yield* runProgram(workerd, ["serve", "config.capnp"], { cwd, stdio: "ignore" })
  yield* untilListening(port)
  return `http://127.0.0.1:${port}/`
})

/** The TypeScript examples of both READMEs, which a stranger copies. */
const readmeExamples = ["package/README.md", "README.md"].flatMap((page) => codeBlocks(readPage(page)))
  .filter(({ language }) => language === "ts").map(({ code }) => code)

/** The examples, in which those that are tests run themselves. */
const runnable = readmeExamples.map((code) =>
  code.replace(/^export const (\w+) = Effect[^]*/m, "$&\nawait Effect.runPromise($1)\n")
)

/** Names what the README says that the entries export and no example names, and an input that the types reject. */
const names = `import { AdminApi, AdminAuth, type AnyError, exactJson, isRetryable, Pet } from "petstore-client"
import { type AnyAdminError, type CreateError, type GetError, withMetadata } from "petstore-client/client"
import type { ChangeKeyError, GetKeyError, IssueKeyError, PetstoreClient } from "petstore-client/client"
import { ApiKeys, AuditLog, KeyUsage, layerMemory, layerService, RateLimiter } from "petstore-client/testing"
export const all = [AdminApi, AdminAuth, exactJson, isRetryable, Pet, withMetadata]
export const services = [ApiKeys, AuditLog, KeyUsage, layerMemory, layerService, RateLimiter]
type AnyOther = CreateError | GetError | IssueKeyError | GetKeyError | ChangeKeyError
export const describe = (error: AnyError | AnyAdminError | AnyOther): string => error.message
// @ts-expect-error: the name is a string
export const create = ({ create }: PetstoreClient["Service"]) => create({ name: 1, categoryId: 1n })
`

/** Prints all pets, a created one, the error of a pet that a newer service has archived, and a redirect. */
const readsNewerService = `import { Console, Effect, Stream } from "effect"
import { PetstoreClient } from "petstore-client/client"
const program = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const pets = [...yield* Stream.runCollect(petstore.all()), yield* petstore.create({ name: "Rex", categoryId: 3n })]
  yield* Console.log(pets.map(({ id, status }) => [id, status].join(" ")).join(", "))
  const archived = yield* Effect.flip(petstore.get(404n))
  yield* Console.log(archived._tag, "unknownCode" in archived && archived.unknownCode)
  yield* petstore.get(307n).pipe(
    Effect.catchTag("PetstoreClientError", ({ message }) => Console.log(message.replace(/^.* returned /, "")))
  )
})
await Effect.runPromise(Effect.provide(program, PetstoreClient.layerConfig()))
`

const runtimes = [
  { name: "Node 24", program: undefined, version: /^v24\./, args: [] },
  { name: "Node 22", program: "node", version: /^v22\.(?:19|20)\.0\n$/, args: [] },
  { name: "Bun", program: "bun", version: /^1\.4\.5\n$/, args: ["run"] },
  { name: "Deno", program: "deno", version: /^deno 2\.9\.5 /, args: ["run", "--allow-net", "--allow-env"] }
] as const

const compilers = [["typescript", "NodeNext", "NodeNext"], ["typescript-5.9", "ESNext", "Bundler"]] as const

const options = { timeout: 240_000, excludeTestServices: true }

layer(Layer.effect(Installed, makeInstalled), options)("The client package", (it) => {
  it.effect("is clean under publint and arethetypeswrong, and can be published", () =>
    Effect.gen(function*() {
      const { project, tarball } = yield* Installed
      yield* run(project, join(root, "node_modules/.bin/publint"), [tarball, "--strict"])
      yield* run(project, join(root, "node_modules/.bin/attw"), [tarball, "--profile", "esm-only"])
      assert.include(yield* run(project, "npm", ["publish", tarball, "--dry-run"]), "+ petstore-client@")
    }))

  it.effect("has its build and its documents, the service's version, and no dependencies", () =>
    Effect.gen(function*() {
      const { installed } = yield* Installed
      const others = readdirSync(installed, { recursive: true, encoding: "utf8" })
        .filter((file) =>
          statSync(join(installed, file)).isFile() && !/^(?:dist|src)\/.+\.(?:js|ts|d\.ts\.map)$/.test(file)
        )
      assert.sameMembers(others, ["CHANGELOG.md", "LICENSE", "README.md", "package.json", "src/api/SPEC.md"])
      const maps = globSync("dist/**/*.d.ts.map", { cwd: installed })
      assert.isAbove(maps.length, 40)
      for (const map of maps) {
        const { sources } = JSON.parse(readFileSync(join(installed, map), "utf8"))
        assert.lengthOf(sources, 1)
        for (const source of sources) assert.isTrue(existsSync(join(installed, map, "..", source)), map)
      }
      const read = (name: string) => readFileSync(join(installed, name), "utf8")
      const { dependencies, peerDependencies, version } = JSON.parse(read("package.json"))
      const expected = [undefined, { effect: `^${effect}` }, manifest.version]
      assert.deepStrictEqual([dependencies, peerDependencies, version], expected)
      assert.include(read("CHANGELOG.md"), `## ${version}\n`)
    }))

  it.effect.each(compilers)("compiles with %s and %s, without Node's types", (row) =>
    Effect.gen(function*() {
      const [compiler, module, moduleResolution] = row
      const { project } = yield* Installed
      assert.lengthOf(readmeExamples, 12)
      for (const [number, code] of readmeExamples.entries()) writeFileSync(join(project, `readme${number}.ts`), code)
      writeFileSync(join(project, "names.ts"), names)
      const output = { outDir: "out", rewriteRelativeImportExtensions: true }
      const options = { module, moduleResolution, skipLibCheck: false, ...output }
      yield* compile(project, ["readme*.ts", "names.ts"], options, compiler)
    }))

  it.effect.each(runtimes)("runs the README examples in $name", ({ args, program, version }) =>
    Effect.gen(function*() {
      const { programs, project } = yield* Installed
      const file = program === undefined ? process.execPath : programs(program)
      assert.match(yield* run(project, file, ["--version"]), version)
      const env = yield* startService()
      const runExample = (code: string) => {
        writeFileSync(join(project, "example.ts"), code)
        return run(project, file, [...args, "example.ts"], env)
      }
      const [calls = "", keys = "", ...others] = runnable
      assert.match(yield* runExample(calls), /^1n\n\{\s+id: 1n,[^]*categoryId: 9223372036854775807n/)
      assert.match(yield* runExample(keys), /^shop pro\n0\nshop true\n$/m)
      yield* Effect.forEach(others, runExample)
    }))

  it.effect.each(runtimes)(
    "reads a newer service, and follows no redirect, in $name",
    ({ args, program }) =>
      Effect.gen(function*() {
        const { programs, project } = yield* Installed
        const file = program === undefined ? process.execPath : programs(program)
        writeFileSync(join(project, "newer.ts"), readsNewerService)
        const env = { PETSTORE_URL: yield* serve(newerService), PETSTORE_API_KEY: "psk" }
        const read = "1 reserved, 2 sold, 1 reserved\nNotFound archived\n307, a redirect to elsewhere.test\n"
        assert.strictEqual(yield* run(project, file, [...args, "newer.ts"], env), read)
      })
  )

  it.effect("has the sizes of bundles that its README names, with rolldown", () =>
    Effect.gen(function*() {
      const { project } = yield* Installed
      const example = readmeExamples[0] ?? assert.fail()
      writeFileSync(join(project, "bundle.ts"), example.replace("layerConfig()", "layer({ baseUrl: '', apiKey })"))
      const bytes = gzipSync(yield* bundleForBrowser(join(project, "bundle.ts")), { level: 9 }).length
      assert.include(readPage("package/README.md"), `has ${Math.round(bytes / 1000)} kB with rolldown`)
    }))

  it.effect.skipIf(!browser)("runs the tests of its README in Chromium", () =>
    Effect.gen(function*() {
      const { project } = yield* Installed
      const tests = runnable.filter((code) => !readmeExamples.includes(code))
      assert.lengthOf(tests, 7)
      const page = yield* openPage({ "/": ["text/html", ""] })
      for (const code of tests) {
        writeFileSync(join(project, "test.ts"), code)
        const module = JSON.stringify(yield* bundleForBrowser(join(project, "test.ts")))
        const url = `URL.createObjectURL(new Blob([${module}], { type: "text/javascript" }))`
        yield* Effect.promise(() => page.evaluate(`import(${url}).then(() => {})`))
      }
    }))

  it.layer(Layer.effect(Examples, makeExamples), { timeout: 300_000 })("with its examples", (it) => {
    it.effect("compile, and run in Node and in Python, with exact integers except for @hey-api", () =>
      Effect.gen(function*() {
        const { path } = yield* Examples
        const files = [
          "derived.ts",
          "generated.ts",
          "onward.ts",
          "inventory/*.ts",
          "import/*.ts",
          "browser/*.ts",
          "worker.ts"
        ]
        const strict = { exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: true }
        const options = { lib: ["ES2024", "DOM", "DOM.Iterable"], types: ["node"], ...strict }
        yield* compile(path, files, { ...options, noEmit: true, allowImportingTsExtensions: true })
        // The generated code does not compile with `exactOptionalPropertyTypes`.
        const generated = { ...options, exactOptionalPropertyTypes: false, outDir: "out" }
        yield* compile(path, ["hey-api.ts", "generated/**/*.ts"], generated)
        const rounded = yield* runNode(path, ["out/hey-api.js"], yield* startService())
        assert.strictEqual(rounded, "Rex 1 invalid_request\ntrue 9007199254740992\n")
        const env = yield* startService()
        const onward = /^\[\{"id":"1",.*\n\[\{"id":1,.*\n(\d) over RPC, \1 stored\n$/
        const outputs = [
          ["generated.ts", /^Rex 1 invalid_request\n$/],
          ["derived.ts", /^1\n$/],
          ["inventory/main.ts", /^category 1: 1\n$/],
          ["onward.ts", onward],
          ["fetch.js", /^\d+n Tom 9223372036854775807n$/m]
        ] as const
        for (const [file, output] of outputs) assert.match(yield* runNode(path, [file], env), output)
        const listed = yield* run(path, "python3", ["pets.py"], env)
        for (const name of ["Tom", "Kit"]) assert.include(listed, ` ${name} 9223372036854775807\n`)
        assert.match(yield* runNode(path, ["--test", "inventory/Inventory.test.ts"]), /pass 2\n[^]*fail 0\n/)
        assert.match(yield* runNode(path, ["--test", "import/Import.test.ts"]), /pass 1\n[^]*fail 0\n/)
      }))

    it.effect("serve pets from Deno", () =>
      Effect.gen(function*() {
        const { env, path } = yield* Examples
        const [deno, port] = [(yield* Installed).programs("deno"), yield* freePort]
        yield* run(path, deno, ["check", "deno.ts"])
        const args = ["run", "--allow-net", "--allow-env", "deno.ts"]
        yield* Effect.forkScoped(run(path, deno, args, { ...env, PORT: String(port) }))
        yield* untilListening(port)
        assert.strictEqual((yield* send(`http://127.0.0.1:${port}`, "")).text, "Rex\nAda\n")
      }))

    it.effect("serve pets from workerd to ten concurrent requests on a cold isolate", () =>
      Effect.gen(function*() {
        const { env, path } = yield* Examples
        const code = yield* bundleForBrowser(join(path, "worker.ts"))
        const workerd = (yield* Installed).programs("workerd")
        const get = send(yield* startWorker(workerd, code, env), "")
        const pets = { status: 200, body: [{ id: "1", name: "Rex" }, { id: "2", name: "Ada" }] }
        const responses = yield* Effect.replicateEffect(get, 10, { concurrency: "unbounded" })
        for (const { body, status } of responses) assert.deepStrictEqual({ status, body }, pets)
        const unauthorized = yield* startWorker(workerd, code, { ...env, PETSTORE_API_KEY: "psk_unknown" })
        assert.containsSubset(yield* send(unauthorized, ""), { status: 502, body: { error: "InvalidApiKey" } })
      }))

    it.effect.skipIf(!browser)("show pets in a page of another origin", () =>
      Effect.gen(function*() {
        const { env, path } = yield* Examples
        const page = yield* openPage({
          "/": ["text/html", readFileSync(join(path, "browser/index.html"), "utf8")],
          "/page.js": ["text/javascript", yield* bundleForBrowser(join(path, "browser/page.ts"))]
        })
        yield* Effect.promise(async () => {
          const show = async (key: string, outcome: string) => {
            await page.getByLabel("Service").fill(env.PETSTORE_URL)
            await page.getByLabel("API key").fill(key)
            await page.getByRole("button").click()
            await page.getByText(outcome).waitFor()
            return page.locator("li").allInnerTexts()
          }
          assert.deepStrictEqual(await show(env.PETSTORE_API_KEY, "Complete"), ["Rex (1)", "Ada (2)"])
          assert.isEmpty(await show("psk_unknown", "incomplete or mistyped"))
        })
      }))
  })
})
