/** The `petstore` command on a terminal: colors, tables, `--watch`, and questions. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { fileURLToPath } from "node:url"
import { temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"
import { open } from "../support/PseudoTerminal.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

const NODE_COMPILE_CACHE = fileURLToPath(new URL("../../node_modules/.cache/petstore", import.meta.url))

/** Starts a service and issues a key. `petstore` starts the command on a terminal. */
const prepare = Effect.gen(function*() {
  const DATA_DIR = yield* temporaryDirectory
  const service = yield* start({ DATA_DIR, ADMIN_TOKEN: "adm_test" })
  const issue = (name: string) =>
    Effect.promise(async (): Promise<{ readonly id: string; readonly key: string }> => {
      const response = await fetch(`${service.management}/admin/keys`, {
        method: "POST",
        headers: { authorization: "Bearer adm_test", "content-type": "application/json" },
        body: JSON.stringify({ name, plan: "free" })
      })
      return await response.json() as { readonly id: string; readonly key: string }
    })
  const petstore = (args: string, env: Readonly<Record<string, string>> = {}) =>
    open(`exec ${process.execPath} ${cli} keys ${args}`, {
      ADMIN_TOKEN: "adm_test",
      PETSTORE_ADMIN_URL: service.management,
      NODE_COMPILE_CACHE,
      ...env
    })
  const call = (key: string, count: number) =>
    Effect.promise(async () => {
      for (let i = 0; i < count; i++) {
        await fetch(`${service.address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })
      }
    })
  const revoke = (id: string) =>
    Effect.promise(() =>
      fetch(`${service.management}/admin/keys/${id}`, {
        method: "DELETE",
        headers: { authorization: "Bearer adm_test" }
      })
    )
  return { service, issue, petstore, call, revoke }
})

/** Shows the character that begins each control sequence. */
const showEscapes = (text: string): string => text.replaceAll("\x1b", "␛")

/** Removes the sequences that set colors. */
const withoutColors = (text: string): string => showEscapes(text).replaceAll(/␛\[\d+m/g, "")

describe("The petstore command on a terminal", () => {
  it.live(
    "prints a colored table with headings, which fits the terminal, and none of the escapes with NO_COLOR",
    () =>
      Effect.gen(function*() {
        const { call, issue, petstore, revoke } = yield* prepare
        const revoked = yield* issue(`a long name ${"x".repeat(100)}`)
        yield* revoke(revoked.id)
        const banned = yield* issue("名前 \u202Etxet")
        yield* call(banned.key, 121)
        const colored = yield* petstore("list")
        assert.strictEqual(yield* colored.exitCode, 0)
        const [headings = "", ...rows] = withoutColors(colored.output()).trimEnd().split("\r\n")
        assert.match(headings, /^ID +NAME +PLAN +PER MINUTE\/DAY +STATE +HINT +LAST USED +BAN ENDS$/)
        assert.lengthOf(rows, 3)
        assert.match(rows[0] ?? "", /^key_\w+ {2}first key +free {2}60\/1,000 +active +\w{4} {2}never +-$/)
        assert.match(rows[1] ?? "", /^key_\w+ {2}a long name x+… {2}free {2}60\/1,000 +revoked/)
        // The control that would reverse the rest of the line is replaced. Each of the first two characters has 2 cells.
        assert.match(
          rows[2] ?? "",
          /^key_\w+ {2}名前 \uFFFDtxet +free {2}60\/1,000 +banned +\w{4} {2}(?:never|\d+[sm] ago) +in \d+[sm]$/
        )
        for (const row of rows) assert.isAtMost(row.length, 110)
        assert.strictEqual(rows[2]?.indexOf("free"), (headings.indexOf("PLAN")) - 2)
        assert.include(colored.output(), "\x1b[32mactive")
        assert.include(colored.output(), "\x1b[31mrevoked")
        assert.include(colored.output(), "\x1b[33mbanned")
        for (const env of [{ NO_COLOR: "1" }, { NO_COLOR: "1", FORCE_COLOR: "1" }, { TERM: "dumb" }]) {
          const plain = yield* petstore("list", env)
          assert.strictEqual(yield* plain.exitCode, 0)
          assert.notInclude(plain.output(), "\x1b")
          assert.include(plain.output(), headings)
        }
        const piped = yield* petstore("list | cat")
        yield* piped.exitCode
        assert.notInclude(piped.output(), "\x1b")
        assert.notInclude(piped.output(), "PLAN")
        const forced = yield* petstore("list | cat", { FORCE_COLOR: "1" })
        yield* forced.exitCode
        assert.include(forced.output(), "\x1b[33mbanned")
      }),
    240_000
  )

  it.live(
    "redraws a key with --watch when its usage changes, survives an outage, and ends with 130 after Ctrl-C",
    () =>
      Effect.gen(function*() {
        const { call, issue, petstore, service } = yield* prepare
        const { id, key } = yield* issue("watched")
        const terminal = yield* petstore(`show ${id} --watch=1`)
        yield* terminal.waitFor(/ 60 of 60 left/)
        assert.include(terminal.output(), "every 1 s, ")
        const first = terminal.output().length
        yield* call(key, 70)
        yield* terminal.waitFor(/ 0 of 60 left/, first)
        yield* terminal.waitFor(/last hour {2}[▁-█]{60} {2}\S*60 allowed\S*, \S*10 rejected\S*, 0 banned/, first)
        // Each frame begins at the first line of the screen, and erases what the last frame has left.
        assert.match(showEscapes(terminal.output()), /␛\[H[^]*␛\[K\r\n␛\[J␛\[H/)
        service.process.kill("SIGKILL")
        yield* terminal.waitFor(/UTC: http:\S+ does not respond\./)
        assert.match(terminal.output().slice(-3_000), /0 of 60 left/)
        terminal.type("\x03")
        assert.strictEqual(yield* terminal.exitCode, 130)
        // The cursor is visible again.
        assert.match(showEscapes(terminal.output()), /␛\[\?25l[^]*␛\[\?25h[^␛]*$/)
      }),
    240_000
  )

  it.live("redraws the list and the usage with --watch", () =>
    Effect.gen(function*() {
      const { call, issue, petstore } = yield* prepare
      const list = yield* petstore("list --watch=1 --search later")
      yield* list.waitFor(/every 1 s/)
      const { id, key } = yield* issue("issued later")
      yield* list.waitFor(/issued later/)
      list.type("\x03")
      assert.strictEqual(yield* list.exitCode, 130)
      const usage = yield* petstore(`usage ${id} --watch=1`)
      yield* usage.waitFor(/last 60 minutes/)
      yield* call(key, 3)
      yield* usage.waitFor(/allowed {3}\S*[▁-█]{60}\S* {2}3/)
      usage.type("\x03")
      assert.strictEqual(yield* usage.exitCode, 130)
    }), 240_000)

  it.live(
    "asks before it revokes a key or rotates it without a grace period, unless --yes is given",
    () =>
      Effect.gen(function*() {
        const { issue, petstore, service } = yield* prepare
        const { id, key } = yield* issue("precious")
        const status = Effect.promise(async () =>
          (await fetch(`${service.address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })).status
        )
        const questions = [[`revoke ${id}`, "This cannot be undone"], [`rotate ${id}`, "stops working now"]] as const
        for (const [args, question] of questions) {
          const refused = yield* petstore(args)
          yield* refused.waitFor(new RegExp(question))
          refused.type("n")
          assert.strictEqual(yield* refused.exitCode, 1)
          assert.include(refused.output(), "Nothing was changed.")
          const cancelled = yield* petstore(args)
          yield* cancelled.waitFor(new RegExp(question))
          cancelled.type("\x03")
          assert.strictEqual(yield* cancelled.exitCode, 130)
        }
        assert.strictEqual(yield* status, 200)
        const graceful = yield* petstore(`rotate ${id} --grace-period 60`)
        assert.strictEqual(yield* graceful.exitCode, 0)
        assert.strictEqual(yield* status, 200)
        const accepted = yield* petstore(`rotate ${id}`)
        yield* accepted.waitFor(/stops working now/)
        accepted.type("y")
        assert.strictEqual(yield* accepted.exitCode, 0)
        assert.strictEqual(yield* status, 401)
        const sure = yield* petstore(`revoke ${id} --yes`)
        assert.strictEqual(yield* sure.exitCode, 0)
        assert.include(sure.output(), `${id} is revoked.`)
      }),
    240_000
  )
})
