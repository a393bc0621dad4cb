/**
 * Runs the blocks of the pages in order, beside a service of their own, and compares what they print with the pages.
 * A block that no test can run has its reason in a comment before it.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, symlinkSync, writeFileSync } from "node:fs"
import { type IncomingMessage, request } from "node:http"
import { dirname, join } from "node:path"
import { dataDirectory } from "../support/Databases.ts"
import { type CodeBlock, codeBlocks, documents, readPage, root } from "../support/Documents.ts"
import { run } from "../support/NpmPrograms.ts"
import * as Postgres from "../support/Postgres.ts"
import { adminToken, compileCache, issue, send, serve, start } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

type Service = Effect.Success<ReturnType<typeof startService>>

const [sh, js, python] = [["bash", "-eu", "-o", "pipefail"], [process.execPath], ["python3"]]
const programs: Readonly<Record<string, ReadonlyArray<string>>> = { sh, js, python }

/** Replaces values that differ between runs: numbers and opaque texts. Status, code and names of fields stay. */
const shapeOf = (json: string): unknown =>
  JSON.parse(json, (name, value: unknown) => typeof value === "number" && name !== "status" ? "a number" : value)

const assertOutput = (actual: string, expected: NonNullable<CodeBlock["output"]>, place: string) => {
  if (expected.language === "json") return assert.deepStrictEqual(shapeOf(actual), shapeOf(expected.code), place)
  const parse = (text: string) => {
    const [head = "", body = ""] = text.replaceAll("\r", "").split("\n\n")
    const [status = "", ...fields] = head.trim().split("\n")
    return { status, body, names: fields.map((field) => field.slice(0, field.indexOf(":")).toLowerCase()) }
  }
  const [found, shown] = [parse(actual), parse(expected.code)]
  assert.strictEqual(found.status.trim(), shown.status.trim(), place)
  assert.includeMembers(found.names, shown.names, place)
  if (shown.body.trim() !== "") assert.deepStrictEqual(shapeOf(found.body), shapeOf(shown.body), place)
}

/** Starts PostgreSQL with the documented role, its database, and the database for the monthly check of a backup. */
const startPostgres = Effect.gen(function*() {
  const { admin, port } = yield* Postgres.run()
  const objects = ["ROLE petstore LOGIN", "DATABASE petstore OWNER petstore", "DATABASE petstore_check OWNER petstore"]
  yield* admin((sql) => Effect.forEach(objects, (object) => sql.unsafe(`CREATE ${object}`)))
  return `postgres://petstore@127.0.0.1:${port}/petstore`
})

/** Starts a service for a page, with three pets unless the page is the README, which creates its own. */
const startService = Effect.fnUntraced(function*(page: string) {
  const cwd = yield* temporaryDirectory
  const DATA_DIR = yield* dataDirectory
  symlinkSync(DATA_DIR, join(cwd, "data"))
  const database = page === "docs/upgrade.md" ? { DATABASE_URL: yield* startPostgres } : {}
  const service = yield* start({ DATA_DIR, ...database })
  const { address, management } = service
  writeFileSync(join(DATA_DIR, "admin-token"), adminToken)
  const { key } = yield* issue(service)
  for (const name of page === "README.md" ? [] : ["Rex", "Tom", "Ada"]) {
    yield* send(`${address}/v1/pets`, key, "POST", { name, categoryId: 3, status: "available" })
  }
  // Blocks run the scripts of the repository, and call the command by its name.
  for (const name of ["node_modules", "src", "package.json", "deploy"]) symlinkSync(join(root, name), join(cwd, name))
  // `keys whose` reads a secret from a file.
  writeFileSync(join(cwd, "secret.txt"), key)
  const bin = yield* temporaryDirectory
  writeFileSync(join(bin, "petstore"), `#!/bin/sh\nexec ${process.execPath} ${join(root, "src/cli.ts")} "$@"\n`)
  chmodSync(join(bin, "petstore"), 0o755)
  // The pages name the default ports. curl connects to those of this service.
  const connectTo = (port: number, url: string) => `connect-to = "localhost:${port}:${new URL(url).host}"\n`
  writeFileSync(join(bin, ".curlrc"), connectTo(8080, address) + connectTo(9090, management))
  const own = { PATH: `${bin}:${dirname(process.execPath)}:${process.env.PATH}`, CURL_HOME: bin, ...compileCache }
  const ports = { PETSTORE_URL: address, PETSTORE_API_KEY: key, PETSTORE_ADMIN_URL: management }
  const env: Readonly<Record<string, string>> = { ...own, ...ports, ADMIN_TOKEN: adminToken, ...database }
  return { cwd, env, key, newId: Effect.map(issue(service), ({ id }) => id) }
})

/** Puts the values of a reader in place of the placeholders of a page. Each `key_…` is a key of its own. */
const withValues = Effect.fnUntraced(function*(code: string, { env, key, newId }: Service) {
  const url = code.includes("export") ? env.PETSTORE_URL ?? "" : "http://localhost:8080"
  let script = code.replaceAll("psk_…", key).replaceAll("http://localhost:8080", url)
    .replaceAll("postgres://…", env.DATABASE_URL ?? "")
  while (script.includes("key_…")) script = script.replace("key_…", yield* newId)
  return script
})

/** Runs one block. `variables` are those that the blocks before it set in the same terminal. */
const runBlock = Effect.fnUntraced(function*({ code, language, line }: CodeBlock, service: Service, variables = "") {
  const file = join(service.cwd, `block_${line}.${language === "js" ? "mjs" : language}`)
  const script = yield* withValues(code, service)
  writeFileSync(file, language === "sh" ? `${variables}\n${script}` : script)
  const [program = "", ...args] = programs[language] ?? []
  // A block gets only the variables that a reader has.
  const assignments = Object.entries(service.env).map(([name, value]) => `${name}=${value}`)
  return yield* run(service.cwd, "env", ["-i", ...assignments, program, ...args, file], {}, service.key)
})

describe("The blocks of", () => {
  for (const page of documents) {
    const blocks = codeBlocks(readPage(page)).filter((block) =>
      block.language in programs && block.notRun === undefined
    )
    if (blocks.length === 0) continue
    const isSkipped = page === "docs/upgrade.md" && !Postgres.isInstalled
    it.live.skipIf(isSkipped)(`${page} print what the page shows`, () =>
      Effect.gen(function*() {
        const service = yield* startService(page)
        let variables = ""
        for (const block of blocks) {
          const output = yield* runBlock(block, service, variables)
          if (block.output !== undefined) assertOutput(output, block.output, `${page}:${block.line}`)
          // Comments like `# {"id":1}` show a body too.
          for (const [, body = ""] of block.code.matchAll(/^# (\{.*)$/gm)) assert.include(output, body)
          const set = block.code.split("\n").filter((line) => /^(?:export )?[A-Z_]+=\S/.test(line)).join("\n")
          if (block.language === "sh" && set !== "") variables += `${yield* withValues(set, service)}\n`
        }
      }))
  }
})

/** A proxy that responds with 502 and 504 to the first two requests, and drops the response to the third. */
const runUnreliableProxy = Effect.fnUntraced(function*(address = "") {
  let received = 0
  const responses: Array<IncomingMessage> = []
  const url = yield* serve((incoming, outgoing) => {
    const attempt = ++received
    if (attempt <= 2) {
      outgoing.writeHead(attempt === 1 ? 502 : 504).end("<h1>Not now</h1>")
      return
    }
    const { headers, method = "GET", url: path = "/" } = incoming
    const passedOn = request(new URL(path, address), { headers, method }).on("response", (response) => {
      responses.push(response)
      if (attempt === 3) incoming.socket.destroy()
      response.pipe(attempt === 3 ? outgoing : outgoing.writeHead(response.statusCode ?? 500, response.headers))
    })
    incoming.pipe(passedOn)
  })
  return { url, responses }
})

it.live("The retry examples create no second pet after a 502, a 504 or a lost response, in each language", () =>
  Effect.gen(function*() {
    const page = "docs/errors-and-limits.md"
    const service = yield* startService(page)
    const blocks = codeBlocks(readPage(page)).filter(({ code }) => /--retry|504/.test(code))
    assert.sameMembers(blocks.map(({ language }) => language), ["sh", "js", "python"])
    for (const block of blocks) {
      const { responses, url } = yield* runUnreliableProxy(service.env.PETSTORE_URL)
      yield* runBlock(block, { ...service, env: { ...service.env, PETSTORE_URL: url } })
      const replayed = responses.map(({ headers }) => headers["idempotent-replayed"])
      assert.deepStrictEqual(replayed, [undefined, "true"], block.language)
    }
  }))
