/**
 * Runs the blocks of the pages in order, beside a service of their own, and compares what they print with the pages.
 * A block that no test can run has its reason in a comment before it.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { type CodeBlock, codeBlocks, documents, readPage, root } from "../support/Documents.ts"
import * as EmbeddedTemplate from "../support/EmbeddedTemplate.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import * as Postgres from "../support/Postgres.ts"
import { compileCache, start } from "../support/Process.ts"
import * as UnreliableProxy from "../support/UnreliableProxy.ts"

type Environment = Readonly<Record<string, string>>

/** The programs that run the languages of the blocks. */
const programs: Readonly<Record<string, { readonly command: ReadonlyArray<string>; readonly extension: string }>> = {
  sh: { command: ["bash", "-eu", "-o", "pipefail"], extension: "sh" },
  js: { command: [process.execPath], extension: "mjs" },
  python: { command: ["python3"], extension: "py" },
  ts: { command: [process.execPath], extension: "ts" }
}

const { exports: entries } = JSON.parse(readPage("package/package.json"))

/** Imports the sources of the client package instead of its build. */
const withSources = (code: string): string =>
  code.replaceAll(/"petstore-client(\/\w+)?"/g, (_, name = "") => {
    const built: string = entries[`.${name}`].default
    return JSON.stringify(join(root, built.replace("./dist/", "src/").replace(/js$/, "ts")))
  })

const run = (command: ReadonlyArray<string>, cwd: string, env: Environment, input = "") =>
  Effect.promise(() =>
    new Promise<string>((resolve, reject) => {
      const [program = "", ...args] = command
      const child = spawn(program, args, { cwd, env: { ...env } })
      let output = ""
      let errors = ""
      child.stdout.on("data", (chunk: Buffer) => output += chunk.toString())
      child.stderr.on("data", (chunk: Buffer) => errors += chunk.toString())
      // A script can end before it reads all of its input.
      child.stdin.on("error", () => {}).end(input)
      child.on("close", (code) =>
        code === 0 ? resolve(output) : reject(new Error(`${command.join(" ")}\n${output}${errors}`)))
    })
  )

/** Replaces values that differ between runs: numbers and opaque texts. Status, code and names of fields stay. */
const shapeOf = (json: string): unknown =>
  JSON.parse(json, (name, value: unknown) => typeof value === "number" && name !== "status" ? "a number" : value)

/** Asserts that the output has the status, the headers and the shape of the body that the page shows. */
const assertOutput = (actual: string, expected: CodeBlock, place: string) => {
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

/** Asserts that curl got the statuses and the bodies that comments like `# 201 {"id":1}` show. */
const assertComments = (code: string, output: string) => {
  for (const [, , body = ""] of code.matchAll(/^# (\d{3}) (.*)$/gm)) assert.include(output, body)
}

const admin = (management: string, token: string, method: string, path: string, body?: unknown) =>
  Effect.promise(async (): Promise<{ readonly id: string; readonly key: string }> => {
    const response = await fetch(`${management}/admin/keys${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(body)
    })
    assert.isTrue(response.ok, response.statusText)
    return JSON.parse(await response.text())
  })

/** Starts a service for a page, with three pets unless the page is the README, which creates its own. */
const startService = Effect.fnUntraced(function*(page: string) {
  const cwd = yield* temporaryDirectory
  const database = page === "docs/upgrade.md" ? (yield* Postgres.run()).url : undefined
  mkdirSync(join(cwd, "data"))
  if (database === undefined) yield* EmbeddedTemplate.copyTo(join(cwd, "data"))
  const { address, management } = yield* start({
    DATA_DIR: join(cwd, "data"),
    ...database !== undefined && { DATABASE_URL: database }
  })
  const token = readFileSync(join(cwd, "data/admin-token"), "utf8").trim()
  const newKey = (perMinute = 1e6) =>
    admin(management, token, "POST", "", { name: "docs", plan: "enterprise", limits: { perMinute, perDay: 1e6 } })
  const { key } = yield* newKey()
  for (const name of page === "README.md" ? [] : ["Rex", "Tom", "Ada"]) {
    yield* Effect.promise(() =>
      fetch(`${address}/v1/pets`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ name, categoryId: 3, status: "available" })
      })
    )
  }
  // Blocks import the packages of the repository, and call the command by its name.
  for (const name of ["node_modules", "src", "package.json", "deploy"]) symlinkSync(join(root, name), join(cwd, name))
  // `keys whose` reads a secret from a file.
  writeFileSync(join(cwd, "secret.txt"), key)
  const bin = yield* temporaryDirectory
  writeFileSync(join(bin, "petstore"), `#!/bin/sh\nexec ${process.execPath} ${join(root, "src/cli.ts")} "$@"\n`)
  chmodSync(join(bin, "petstore"), 0o755)
  // The pages name the default ports. curl connects to those of this service.
  const connectTo = (port: number, url: string) => `connect-to = "localhost:${port}:${new URL(url).host}"\n`
  writeFileSync(join(bin, ".curlrc"), connectTo(8080, address) + connectTo(9090, management))
  const env: Environment = {
    PATH: `${bin}:${dirname(process.execPath)}:${process.env.PATH}`,
    CURL_HOME: bin,
    ...compileCache,
    PETSTORE_URL: address,
    PETSTORE_API_KEY: key,
    PETSTORE_ADMIN_URL: management,
    ADMIN_TOKEN: token,
    ...database !== undefined && { DATABASE_URL: database }
  }
  const newId = Effect.map(newKey(), ({ id }) => id)
  return { cwd, env, key, newId, newKey }
})

/** Puts the values of a reader in place of the placeholders of a page. Each `key_…` is a key of its own. */
const withValues = Effect.fnUntraced(function*(
  code: string,
  { env, key, newId }: Effect.Success<ReturnType<typeof startService>>
) {
  let script = code.replaceAll("psk_…", key).replaceAll(
    "http://localhost:8080",
    (url) => code.includes("export") ? env.PETSTORE_URL ?? "" : url
  )
    .replaceAll("postgres://…", env.DATABASE_URL ?? "")
  while (script.includes("key_…")) script = script.replace("key_…", yield* newId)
  return script
})

const runnable = documents.flatMap((page) => {
  const blocks = codeBlocks(readPage(page)).filter(({ language, notRun }) =>
    language in programs && notRun === undefined
  )
  return blocks.length === 0 ? [] : [{ page, blocks }]
})

/** Runs one block. `variables` are those that the blocks before it set in the same terminal. */
const runBlock = Effect.fnUntraced(function*(
  page: string,
  { code, language, line }: CodeBlock,
  service: Effect.Success<ReturnType<typeof startService>>,
  variables = ""
) {
  const program = programs[language]
  if (program === undefined) return yield* Effect.die(`${page}:${line} has no program`)
  const file = join(service.cwd, `${page.replaceAll(/\W/g, "_")}_${line}.${program.extension}`)
  const script = yield* withValues(code, service)
  writeFileSync(file, language === "sh" ? `${variables}\n${script}` : withSources(script))
  return yield* run([...program.command, file], service.cwd, service.env, service.key)
})

describe("The blocks of", () => {
  for (const { blocks, page } of runnable) {
    const isSkipped = page === "docs/upgrade.md" && Postgres.missing !== undefined
    it.live.skipIf(isSkipped)(
      `${page} run without an error, and print what the page shows`,
      () =>
        Effect.gen(function*() {
          const service = yield* startService(page)
          let variables = ""
          for (const block of blocks) {
            // `startService` has run these two commands.
            if (/^npm ci\nnpm start$/m.test(block.code)) continue
            const output = yield* runBlock(page, block, service, variables)
            if (block.output !== undefined) assertOutput(output, block.output, `${page}:${block.line}`)
            assertComments(block.code, output)
            const set = block.code.split("\n").filter((line) => /^(?:export )?[A-Z_]+=\S/.test(line)).join("\n")
            if (block.language === "sh" && set !== "") variables += `${yield* withValues(set, service)}\n`
          }
        }),
      120_000
    )
  }
})

describe("The examples that retry", () => {
  const page = "docs/errors-and-limits.md"
  it.live(
    "create no second pet after 502, 504 and a lost response, in each language",
    () =>
      Effect.gen(function*() {
        const service = yield* startService(page)
        const blocks = codeBlocks(readPage(page)).filter(({ code }) => /--retry|504/.test(code))
        assert.sameMembers(blocks.map(({ language }) => language), ["sh", "js", "python"])
        for (const block of blocks) {
          const { forwarded, url } = yield* UnreliableProxy.run(service.env.PETSTORE_URL ?? "")
          yield* runBlock(page, block, { ...service, env: { ...service.env, PETSTORE_URL: url } })
          assert.deepStrictEqual(forwarded.map(({ isReplayed }) => isReplayed), [false, true], block.language)
        }
      }),
    120_000
  )
})
