/**
 * Runs the examples of `docs/api` and the program of the README against the service, and compares their output with the
 * pages. The code samples of the OpenAPI document are examples too.
 */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { execFile } from "node:child_process"
import { readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { type CodeBlock, codeBlocks, pagesBelow, readPage, root } from "../support/Documents.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import * as TemporaryDirectory from "../support/TemporaryDirectory.ts"
import * as UnreliableProxy from "../support/UnreliableProxy.ts"

type Environment = Readonly<Record<string, string>>

/** The service, with some pets, and the variables that the examples read. */
class Service extends Context.Service<Service, {
  readonly directory: string
  readonly env: Environment
  /** Issues a key with this limit per minute, and returns its secret. */
  newKey(perMinute: number): Effect.Effect<string>
}>()("test/docs/Examples/Service") {
  static readonly layer = Layer.effect(
    Service,
    Effect.gen(function*() {
      const dataDirectory = yield* temporaryDirectory
      const { address, management } = yield* start({ DATA_DIR: dataDirectory })
      const token = readFileSync(join(dataDirectory, "admin-token"), "utf8").trim()
      const post = (url: string, bearer: string, body: unknown) =>
        Effect.promise(async (): Promise<{ readonly key: string }> => {
          const headers = { authorization: `Bearer ${bearer}`, "content-type": "application/json" }
          const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })
          assert.strictEqual(response.status, 201)
          return JSON.parse(await response.text())
        })
      const newKey = (perMinute: number): Effect.Effect<string> =>
        Effect.map(
          post(`${management}/admin/keys`, token, {
            name: "docs",
            plan: "enterprise",
            limits: { perMinute, perDay: 1e6 }
          }),
          ({ key }) => key
        )
      const key = yield* newKey(1e6)
      for (const name of ["Rex", "Tom", "Ada"]) {
        yield* post(`${address}/v1/pets`, key, { name, categoryId: 3, status: "available" })
      }
      const env = { PATH: process.env.PATH ?? "", PETSTORE_URL: address, PETSTORE_API_KEY: key }
      return { directory: yield* projectDirectory, env, newKey }
    })
  )
}

/** A directory outside of the repository, from which examples import the packages of the repository. */
const projectDirectory = Effect.tap(TemporaryDirectory.make("petstore-docs-"), (directory) =>
  Effect.sync(() => {
    symlinkSync(join(root, "node_modules"), join(directory, "node_modules"))
    writeFileSync(join(directory, "package.json"), JSON.stringify({ type: "module" }))
  }))

/** The programs that run the languages of the examples. */
const programs: Readonly<Record<string, { readonly command: ReadonlyArray<string>; readonly extension: string }>> = {
  sh: { command: ["sh", "-e"], extension: "sh" },
  js: { command: [process.execPath], extension: "mjs" },
  python: { command: ["python3"], extension: "py" },
  ts: { command: [process.execPath], extension: "ts" }
}

/** The source files of the entry points of the client package. */
const entries: Readonly<Record<string, string>> = {
  "petstore-client/api": "src/api/entry.ts",
  "petstore-client/client": "src/client/PetstoreClient.ts",
  "petstore-client/testing": "src/testing.ts"
}

/** The example of CONTRIBUTING.md is a file of `src/database/migrations`. */
const withSources = (code: string): string =>
  code
    .replaceAll(/"(petstore-client\/\w+)"/g, (_, name: string) => JSON.stringify(join(root, entries[name] ?? name)))
    .replaceAll(/"\.\.\/(\w+\.ts)"/g, (_, name: string) => JSON.stringify(join(root, "src/database", name)))

const run = (command: ReadonlyArray<string>, cwd: string, env: Environment) =>
  Effect.promise(() =>
    new Promise<string>((resolve, reject) => {
      const [program = "", ...args] = command
      execFile(program, args, { cwd, env: { ...env }, timeout: 90_000 }, (error, stdout, stderr) =>
        error === null ? resolve(stdout) : reject(new Error(`${command.join(" ")}\n${stdout}\n${stderr}`)))
    })
  )

/** Runs an example and returns its output. */
const runExample = Effect.fnUntraced(function*({ code, language, line }: CodeBlock, page: string, env: Environment) {
  const { directory } = yield* Service
  const program = programs[language]
  if (program === undefined) return yield* Effect.die(`${page}:${line} has no program`)
  const file = join(directory, `${page.replaceAll(/\W/g, "_")}_${line}.${program.extension}`)
  writeFileSync(file, withSources(code))
  return yield* run([...program.command, file], directory, env)
})

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

/** The examples that wait until a used up limit resets run with such a key, in a test of their own. */
const waiting = "docs/api/rate-limits.md"

interface Example {
  readonly page: string
  readonly block: CodeBlock
}

const examples: ReadonlyArray<Example> = [...pagesBelow("docs/api"), "README.md"].flatMap((page) =>
  codeBlocks(readPage(page))
    // `Commands.long.test.ts` runs the shell commands of the README.
    .filter(({ language }) => language in programs && !(page === "README.md" && language === "sh"))
    .map((block) => ({ page, block }))
)

/** Whether the page says that the example sends a failed request again. */
const retries = ({ block, page }: Example): boolean =>
  /--retry|50[24]/.test(block.code) ||
  (block.language === "ts" && /docs\/api\/(idempotency|rate-limits)/.test(page))

layer(Service.layer, { excludeTestServices: true, timeout: 60_000 })(
  "The examples of docs/api and the README",
  (it) => {
    for (const { block, page } of examples.filter((example) => example.page !== waiting)) {
      it.effect(`run without an error, and print what the page shows: ${page}:${block.line} (${block.language})`, () =>
        Effect.gen(function*() {
          const { env } = yield* Service
          const output = yield* runExample(block, page, env)
          if (block.output !== undefined) assertOutput(output, block.output, `${page}:${block.line}`)
        }))
    }

    it.effect("wait for a used up limit, and are not banned", () =>
      Effect.gen(function*() {
        const { env, newKey } = yield* Service
        const perMinute = 10
        const key = yield* newKey(perMinute)
        const list = () => fetch(`${env.PETSTORE_URL}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })
        yield* Effect.promise(() => Promise.all(Array.from({ length: perMinute }, list)))
        const found = examples.filter(({ page }) => page === waiting)
        assert.isAtLeast(found.length, 4)
        yield* Effect.forEach(
          found,
          ({ block, page }) => runExample(block, page, { ...env, PETSTORE_API_KEY: key }),
          { concurrency: "unbounded" }
        )
      }), 100_000)

    for (const { block, page } of examples.filter(retries)) {
      // curl does not retry a request whose response is lost.
      const losesResponse = block.language !== "sh"
      const faults = losesResponse ? "502, 504 and a lost response" : "502 and 504"
      it.effect(
        `retry after ${faults}, and create no second pet: ${page}:${block.line} (${block.language})`,
        () =>
          Effect.gen(function*() {
            const { env } = yield* Service
            const { forwarded, url } = yield* UnreliableProxy.run(env.PETSTORE_URL ?? "", { losesResponse })
            const output = yield* runExample(block, page, { ...env, PETSTORE_URL: url })
            assert.isAtLeast(forwarded.length, losesResponse ? 2 : 1)
            const [first, ...further] = forwarded
            for (const { isReplayed, method, status } of further) {
              assert.strictEqual(status, first?.status)
              assert.strictEqual(isReplayed, method === "POST")
            }
            // Pages that are written to a file have no part of a failed attempt.
            if (block.code.includes(" -o ")) assert.strictEqual(output, yield* runExample(block, page, env))
          }),
        60_000
      )
    }

    it.effect("in TypeScript compile in strict mode", () =>
      Effect.gen(function*() {
        const { directory, env } = yield* Service
        const contributing = codeBlocks(readPage("CONTRIBUTING.md")).map((block) => ({
          page: "CONTRIBUTING.md",
          block
        }))
        const programs = [...examples, ...contributing].filter(({ block }) => block.language === "ts")
        const files = programs.map(({ block, page }) => {
          const file = join(directory, `compiled_${page.replaceAll(/\W/g, "_")}_${block.line}.ts`)
          writeFileSync(file, withSources(block.code))
          return file
        })
        const compilerOptions = {
          ...JSON.parse(readFileSync(join(root, "tsconfig.json"), "utf8")).compilerOptions,
          plugins: [],
          rewriteRelativeImportExtensions: false
        }
        writeFileSync(
          join(directory, "tsconfig.json"),
          JSON.stringify({
            compilerOptions,
            files: [...files, join(root, "src/api/JsonSourceText.d.ts")]
          })
        )
        yield* run([process.execPath, join(root, "node_modules/typescript/bin/tsc"), "-p", directory], directory, env)
      }), 60_000)
  }
)
