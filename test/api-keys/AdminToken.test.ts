/** Tests the admin token, from `ADMIN_TOKEN` and from its file, which have the same rules. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, ConfigProvider, Effect, Layer, Logger, Redacted } from "effect"
import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { AdminToken } from "../../src/api-keys/AdminToken.ts"
import * as LogLines from "../../src/observability/LogLines.ts"
import { random, temporaryDirectory } from "../support/Harness.ts"

/** Reads the token in the environment `env`. Returns it with the lines that this logs. */
const readToken = (env: Readonly<Record<string, string>>) =>
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

describe("The admin token", () => {
  it.effect("of fewer than 16 characters works, with a warning that names its source and not the token", () =>
    Effect.gen(function*() {
      const { lines: [line, ...others], token } = yield* readToken({ ADMIN_TOKEN: " adm_tooshort\n" })
      assert.strictEqual(token, "adm_tooshort")
      assert.include(line, "Warn ADMIN_TOKEN is short")
      assert.notInclude(line, token)
      assert.lengthOf(others, 0)
    }))

  it.effect("in a file is rejected if no client can send it, and the message names the file and not the token", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const file = join(DATA_DIR, "admin-token")
      writeFileSync(file, "adm_secret\nadm_secret_2", { mode: 0o600 })
      const message = LogLines.describe(Cause.fail(yield* Effect.flip(readToken({ DATA_DIR }))))
      assert.include(message, `${file}: expected 1 to 4096 visible ASCII characters`)
      assert.include(message, "remove the file, and the service makes a new token")
      assert.notInclude(message, "adm_secret")
    }))

  it.effect("in a file that other users can access is restricted to its owner, with a warning", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const file = join(DATA_DIR, "admin-token")
      const validToken = "adm_0123456789abcdefghijklmnopqrstuvwxyz"
      writeFileSync(file, `  ${validToken}\r\n`)
      for (const mode of [0o644, 0o640, 0o602]) {
        chmodSync(file, mode)
        const { lines, token } = yield* readToken({ DATA_DIR })
        assert.strictEqual(token, validToken)
        assert.lengthOf(lines, 1)
        assert.include(lines[0], `Warn ${file} had mode 0${mode.toString(8)}`)
        assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      }
      chmodSync(file, 0o400)
      assert.deepStrictEqual((yield* readToken({ DATA_DIR })).lines, [])
      assert.strictEqual(statSync(file).mode & 0o777, 0o400)
    }))

  it.effect("is created in a file of mode 0600 if it is missing, and stays the same at the next start", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const first = yield* readToken({ DATA_DIR })
      assert.deepStrictEqual(first.lines, [])
      assert.match(first.token, /^adm_\w{32}$/)
      assert.strictEqual(statSync(join(DATA_DIR, "admin-token")).mode & 0o777, 0o600)
      assert.deepStrictEqual(yield* readToken({ DATA_DIR }), first)
      assert.strictEqual(readFileSync(join(DATA_DIR, "admin-token"), "utf8"), `${first.token}\n`)
    }))
})
