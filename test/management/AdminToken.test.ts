import { NodeFileSystem } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Cause, ConfigProvider, Effect, Layer, Logger, Redacted } from "effect"
import { chmodSync, statSync, writeFileSync } from "node:fs"
import { join, relative } from "node:path"
import { redactSecrets } from "../../src/api/Secrets.ts"
import * as AdminAuthentication from "../../src/management/AdminAuthentication.ts"
import { AdminToken } from "../../src/management/AdminToken.ts"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import { random } from "../support/Databases.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Reads the token in the environment `env`. Returns it with the lines that this logs. */
const readToken = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>) {
  const lines = new Array<string>()
  const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
  const { token } = yield* AdminToken.pipe(
    Effect.provide(Layer.provide(AdminToken.layer, [random, NodeFileSystem.layer, Logger.layer([logger])])),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromUnknown(env))
  )
  return { token: Redacted.value(token), lines }
})

describe("The admin token", () => {
  it.effect("of fewer than 16 characters ends the start, and the message does not have the token", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(readToken({ ADMIN_TOKEN: "adm_fifteen_cha" }))
      const message = describeCause(Cause.fail(error))
      assert.strictEqual(message, "ADMIN_TOKEN: expected 16 to 4096 visible ASCII characters without spaces")
      assert.strictEqual((yield* readToken({ ADMIN_TOKEN: " adm_sixteen_char\n" })).token, "adm_sixteen_char")
    }))

  it.effect("in a file is rejected if no client can send it, and the message names the file and not the token", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      writeFileSync(join(DATA_DIR, "admin-token"), "adm_secret\nadm_secret_2", { mode: 0o600 })
      const error = yield* Effect.flip(readToken({ DATA_DIR: relative(".", DATA_DIR) }))
      const message = describeCause(Cause.fail(error))
      assert.match(message, new RegExp(`^${DATA_DIR}/admin-token: expected 16 to 4096 visible ASCII characters`))
      assert.include(message, "Remove the file and restart: the service makes a new token")
      assert.notInclude(message, "adm_secret")
    }))

  it.effect("is created in a file for its owner alone, and stays the same when other users can access the file", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const file = join(DATA_DIR, "admin-token")
      const mode = () => statSync(file).mode & 0o777
      const first = yield* readToken({ DATA_DIR })
      assert.match(first.token, /^adm_\w{32}$/)
      assert.deepStrictEqual([first.lines, mode()], [[], 0o600])
      // White space around a token that an operator wrote is ignored.
      writeFileSync(file, `  ${first.token}\r\n`)
      for (const open of [0o644, 0o640, 0o602]) {
        chmodSync(file, open)
        const { lines, token } = yield* readToken({ DATA_DIR })
        assert.deepStrictEqual([token, lines.length, mode()], [first.token, 1, 0o600])
        assert.include(lines[0], `Warn ${file} had mode 0${open.toString(8)}`)
      }
      chmodSync(file, 0o400)
      assert.deepStrictEqual(yield* readToken({ DATA_DIR }), first)
      assert.strictEqual(mode(), 0o400)
    }))

  it.effect("is hidden in log lines, also if an operator chose it", () =>
    Effect.gen(function*() {
      const token = Redacted.make("chosen-by-an-operator")
      const authentication = Layer.provide(
        AdminAuthentication.layer,
        Layer.succeed(AdminToken, { source: "ADMIN_TOKEN", token })
      )
      yield* Layer.build(authentication)
      assert.strictEqual(redactSecrets("/chosen-by-an-operator/x"), "/…/x")
    }))
})
