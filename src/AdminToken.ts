/** The operator's token for the management port. */
import { Config, Context, Effect, Layer, Option, Redacted } from "effect"
import { chmodSync, existsSync, linkSync, readFileSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Secret from "./api-keys/Secret.ts"
import { dataDirectory, DataDirectoryUnusable } from "./DataDirectory.ts"

export class AdminToken extends Context.Service<AdminToken, Redacted.Redacted>()("petstore/AdminToken") {
  /** `ADMIN_TOKEN`; without it, one that is made at the first start and kept in `DATA_DIR/admin-token`. */
  static readonly layer = Layer.effect(
    AdminToken,
    Effect.gen(function*() {
      const configured = yield* Config.option(Config.Redacted("ADMIN_TOKEN"))
      if (Option.isSome(configured)) {
        const token = Redacted.value(configured.value).trim()
        if (token.length < 16) yield* Effect.logWarning("ADMIN_TOKEN is short: who can reach the port may guess it")
        return Redacted.make(token)
      }
      const directory = yield* dataDirectory
      const file = join(directory, "admin-token")
      const made = `adm_${yield* Secret.randomText(32)}`
      const suffix = yield* Secret.randomText(8)
      return yield* Effect.try({
        try: () => {
          keep(file, made, suffix)
          chmodSync(file, 0o600)
          const token = readFileSync(file, "utf8").trim()
          if (token === "") throw new Error(`${file} is empty: remove it, and a new token is made`)
          return Redacted.make(token)
        },
        catch: (cause) => new DataDirectoryUnusable({ directory, cause })
      })
    })
  )
}

/** Writes `token` to `file`, unless there is one: of two processes that start at once, both have the first one's. */
const keep = (file: string, token: string, suffix: string): void => {
  if (existsSync(file)) return
  // Linked once it is whole, so that nobody reads half of it.
  const whole = `${file}.${suffix}`
  writeFileSync(whole, `${token}\n`, { mode: 0o600 })
  try {
    linkSync(whole, file)
  } catch (error) {
    if (!existsSync(file)) throw error
  } finally {
    unlinkSync(whole)
  }
}
