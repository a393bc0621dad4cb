/** Runs the commands of the documents in a checkout, beside the service. `Examples.long.test.ts` runs those of `docs/api`. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process"
import { chmodSync, cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join, relative } from "node:path"
import { type CodeBlock, codeBlocks, documents, readPage, root } from "../support/Documents.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"
import * as Postgres from "../support/Postgres.ts"

type Environment = Readonly<Record<string, string>>

/** The pages whose commands need more than a service on the embedded database. */
const needs: Readonly<Record<string, "install" | "postgres">> = {
  "README.md": "install",
  "docs/backup.md": "postgres"
}

const pages = documents.filter((page) => !page.startsWith("docs/api/")).map((page) => ({
  page,
  blocks: codeBlocks(readPage(page)).filter(({ language }) => language === "sh")
}))

/** The last command starts the service, which runs until the end of the page's test. */
const startsService = ({ code }: CodeBlock): boolean => /(?:^|\s)npm start\n$/.test(code)

/** Creates a checkout. It has the dependencies of this one, unless the page installs them. */
const checkout = Effect.fnUntraced(function*(installs: boolean) {
  const directory = yield* temporaryDirectory
  const isCopied = (path: string) => !/^(?:node_modules|data|coverage|\.git|dist)(?:\/|$)/.test(relative(root, path))
  if (installs) cpSync(root, directory, { recursive: true, filter: isCopied })
  else {for (const name of ["package.json", "node_modules", "src", "deploy"]) {
      symlinkSync(join(root, name), join(directory, name))
    }}
  return directory
})

/** The environment of the shells. Only ports, databases and paths differ from those of a reader. */
const environment = Effect.fnUntraced(function*(page: string) {
  const programs = yield* temporaryDirectory
  const [port, management] = [yield* freePort, yield* freePort]
  // The pages name the default ports. curl connects to those of this test, and prints the status of each response.
  writeFileSync(
    join(programs, ".curlrc"),
    [
      `connect-to = "localhost:8080:127.0.0.1:${port}"`,
      `connect-to = "localhost:9090:127.0.0.1:${management}"`,
      `write-out = "\\nstatus %{http_code}\\n"`
    ].join("\n")
  )
  writeFileSync(join(programs, "petstore"), `#!/bin/sh\nexec ${process.execPath} ${join(root, "src/cli.ts")} "$@"\n`)
  chmodSync(join(programs, "petstore"), 0o755)
  const need = needs[page]
  const databaseUrl = need === "postgres" ? (yield* Postgres.run()).url : ""
  return {
    PATH: `${programs}:${dirname(process.execPath)}:${process.env.PATH}`,
    HOME: homedir(),
    NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS ?? "",
    CURL_HOME: programs,
    HOST: "127.0.0.1",
    PORT: String(port),
    MANAGEMENT_PORT: String(management),
    DATABASE_URL: databaseUrl,
    REDIS_URL: "",
    CHECK_URL: databaseUrl.replace(/\/postgres$/, "/petstore_check")
  }
})

interface Shell {
  readonly output: () => string
  readonly exit: Promise<number | null>
}

/** Runs a script in a process group of its own. The scope kills the group. */
const shell = (script: string, cwd: string, env: Environment, input = "") =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() =>
        spawn("bash", ["--norc", "-eu", "-o", "pipefail", "-c", script], { cwd, env: { ...env }, detached: true })
      ),
      (child: ChildProcessWithoutNullStreams) =>
        Effect.sync(() => {
          try {
            if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL")
          } catch {
            // All processes of the group have ended.
          }
        })
    ),
    (child): Shell => {
      let output = ""
      const append = (chunk: Buffer) => {
        output += chunk.toString()
      }
      child.stdout.on("data", append)
      child.stderr.on("data", append)
      // A script can end before it reads all of its input.
      child.stdin.on("error", () => {}).end(input)
      return { output: () => output, exit: new Promise((resolve) => child.on("close", (code) => resolve(code))) }
    }
  )

/** Waits until a process prints the URL of a management port, and is ready. Returns this URL. */
const ready = ({ exit, output }: Shell) =>
  Effect.promise(async () => {
    let exited = false
    const watch = async () => {
      await exit
      exited = true
    }
    void watch()
    for (;;) {
      for (const [url] of output().matchAll(/http:\/\/[\w.:]+:\d+/g)) {
        if (await fetch(`${url}/readyz`).then(({ ok }) => ok, () => false)) return url
      }
      if (exited) throw new Error(output())
      await new Promise((resolve) => setTimeout(resolve, 200))
    }
  })

const run = Effect.fnUntraced(function*(script: string, cwd: string, env: Environment, input: string) {
  const { exit, output } = yield* shell(script, cwd, env, input)
  const code = yield* Effect.promise(() => exit)
  assert.strictEqual(code, 0, `${script}\n${output()}`)
  return output()
})

/** Issues a key whose version is 3, as the example of a conditional change has it. */
const issueKey = (cwd: string, env: Environment) =>
  Effect.promise(async (): Promise<{ readonly id: string; readonly key: string }> => {
    const token = readFileSync(join(cwd, "data/admin-token"), "utf8").trim()
    const send = async (method: string, path: string, body: unknown) => {
      const response = await fetch(`http://127.0.0.1:${env.MANAGEMENT_PORT}/admin/keys${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify(body)
      })
      assert.isTrue(response.ok)
      return JSON.parse(await response.text())
    }
    const issued = await send("POST", "", { name: "docs", plan: "free" })
    for (const change of [{ plan: "pro" }, { name: "acme" }]) await send("PATCH", `/${issued.id}`, change)
    return issued
  })

/** Puts the values of a reader in place of the placeholders of a page. Each `key_…` is a key of its own. */
const withValues = Effect.fnUntraced(function*(code: string, secret: string, cwd: string, env: Environment) {
  let script = code.replaceAll("psk_…", secret)
    .replaceAll("postgres://…", env.DATABASE_URL ?? "").replaceAll("redis://…", env.REDIS_URL ?? "")
  while (script.includes("key_…")) script = script.replace("key_…", (yield* issueKey(cwd, env)).id)
  assert.notInclude(script, "…")
  return script
})

/** Asserts that curl got the statuses and the bodies that comments like `# 201 {"id":1}` show, or else only successes. */
const assertResponses = (code: string, output: string) => {
  const statuses = [...output.matchAll(/^status (\d{3})$/gm)].map(([, status]) => status)
  const shown = [...code.matchAll(/(?:^| )# (\d{3})\b ?(.*)$/gm)]
  for (const [, , body = ""] of shown) assert.include(output, body)
  if (shown.length > 0) assert.deepStrictEqual(statuses, shown.map(([, status]) => status))
  else assert.isTrue(statuses.every((status = "") => status.startsWith("2")), output)
}

const runPage = Effect.fnUntraced(function*(page: string, blocks: ReadonlyArray<CodeBlock>) {
  const cwd = yield* checkout(needs[page] === "install")
  const env = yield* environment(page)
  const [first] = blocks
  if (first !== undefined && !startsService(first)) yield* Effect.flatMap(shell("npm start", cwd, env), ready)
  let secret = ""
  let variables = ""
  for (const block of blocks) {
    if (startsService(block)) {
      const service = yield* shell(yield* withValues(block.code, secret, cwd, env), cwd, env)
      yield* ready(service)
      secret = /psk_\w{38}/.exec(service.output())?.[0] ?? ""
      continue
    }
    if (secret === "") secret = (yield* issueKey(cwd, env)).key
    writeFileSync(join(cwd, "secret.txt"), secret)
    const script = yield* withValues(block.code, secret, cwd, env)
    // `keys whose` reads a secret from standard input.
    const output = yield* run(`${variables}\n${script}`, cwd, env, secret)
    assertResponses(block.code, output)
    // The next blocks of a page run in the same terminal.
    variables += script.split("\n").filter((line) => /^(?:export )?[A-Z_]+=\S/.test(line)).join("\n")
  }
})

describe("The commands of the documents", () => {
  for (const { blocks, page } of pages) {
    const runnable = blocks.filter(({ notRun }) => notRun === undefined)
    if (runnable.length === 0) continue
    const isSkipped = needs[page] === "postgres" ? Postgres.missing : undefined
    it.live.skipIf(isSkipped !== undefined)(
      `run without an error, and print what the page shows: ${page}`,
      () => runPage(page, runnable),
      600_000
    )
  }

  it("have a reason where they are not run", () => {
    const reasons = pages.flatMap(({ blocks }) => blocks.flatMap(({ notRun }) => notRun ?? []))
    assert.deepStrictEqual(reasons.filter((reason) => reason.length < 10), [])
  })
})
