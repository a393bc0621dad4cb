/** The admin token, from the environment and from its file: one check for both. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Logger, Redacted } from "effect"
import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { AdminToken } from "../../src/api-keys/AdminToken.ts"
import { random, temporaryDirectory } from "../support/Harness.ts"

const long = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** The token that `env` gives, and the log lines of reading it. */
const read = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function*() {
    const lines = new Array<string>()
    const token = yield* AdminToken.pipe(Effect.provide(AdminToken.layer.pipe(
      Layer.provide(random),
      Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(env))),
      Layer.provide(Logger.layer([Logger.make(({ logLevel, message }) => {
        lines.push(`${logLevel} ${String(message)}`)
      })]))
    )))
    return { token: Redacted.value(token), lines }
  })

/** Reads `text` as `ADMIN_TOKEN` and as the file; says which source a message must name. */
const sources = (text: string) =>
  Effect.gen(function*() {
    const directory = yield* temporaryDirectory
    const file = join(directory, "admin-token")
    writeFileSync(file, text, { mode: 0o600 })
    return [
      { source: "ADMIN_TOKEN", outcome: read({ ADMIN_TOKEN: text }) },
      { source: file, outcome: read({ DATA_DIR: directory }) }
    ]
  })

describe("The admin token", () => {
  it.effect("is taken without the white space around it", () =>
    Effect.gen(function*() {
      for (const { outcome } of yield* sources(`  ${long}\r\n`)) {
        assert.deepStrictEqual(yield* outcome, { token: long, lines: [] })
      }
    }))

  it.effect("of fewer than 16 characters is taken with a warning that names its source and not the token", () =>
    Effect.gen(function*() {
      for (const { outcome, source } of yield* sources("adm_tooshort")) {
        const { lines, token } = yield* outcome
        assert.strictEqual(token, "adm_tooshort")
        assert.lengthOf(lines, 1)
        assert.include(lines[0], `Warn ${source} is short`)
        assert.notInclude(lines[0], token)
      }
    }))

  it.effect("is rejected where no client can send it, by a message that names its source and not the token", () =>
    Effect.gen(function*() {
      for (
        const text of [
          " \n",
          "adm_secret adm_secret_2",
          "adm_secret\nadm_secret_2",
          "adm_secret\0",
          "adm_secret\u00e9",
          `adm_secret${"x".repeat(4_096)}`
        ]
      ) {
        for (const { outcome, source } of yield* sources(text)) {
          const { message } = yield* Effect.flip(outcome)
          assert.include(message, `${source}: expected 1 to 4096 visible ASCII characters`)
          assert.notInclude(message, "adm_secret")
        }
      }
    }))

  it.effect("in an empty file is rejected with what to do next", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const file = join(DATA_DIR, "admin-token")
      writeFileSync(file, "", { mode: 0o600 })
      assert.include((yield* Effect.flip(read({ DATA_DIR }))).message, "remove the file")
    }))

  it.effect("in a file that other users may read is taken away from them with a warning", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const file = join(DATA_DIR, "admin-token")
      writeFileSync(file, long)
      for (const mode of [0o644, 0o640, 0o602]) {
        chmodSync(file, mode)
        const { lines, token } = yield* read({ DATA_DIR })
        assert.strictEqual(token, long)
        assert.lengthOf(lines, 1)
        assert.include(lines[0], `Warn ${file} had mode 0${mode.toString(8)}`)
        assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      }
      chmodSync(file, 0o400)
      assert.deepStrictEqual((yield* read({ DATA_DIR })).lines, [])
      assert.strictEqual(statSync(file).mode & 0o777, 0o400)
    }))

  it.effect("is made where there is none, in a file of mode 0600, and stays the same", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const first = yield* read({ DATA_DIR })
      assert.deepStrictEqual(first.lines, [])
      assert.match(first.token, /^adm_\w{32}$/)
      assert.strictEqual(statSync(join(DATA_DIR, "admin-token")).mode & 0o777, 0o600)
      assert.deepStrictEqual(yield* read({ DATA_DIR }), first)
      assert.strictEqual(readFileSync(join(DATA_DIR, "admin-token"), "utf8"), `${first.token}\n`)
    }))
})
