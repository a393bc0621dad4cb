/** The admin token of the management port. */
import { Config, Context, Data, Effect, Layer, Option, Redacted } from "effect"
import { chmodSync, existsSync, linkSync, readFileSync, statSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { dataDirectory, DataDirectoryUnusable } from "../config/DataDirectory.ts"
import * as Secret from "./Secret.ts"

/** The admin token is empty, or cannot be sent in an `Authorization` header. */
export class UnusableAdminToken extends Data.TaggedError("UnusableAdminToken")<{
  readonly source: string
  readonly advice: string
}> {
  override readonly message =
    `${this.source}: expected 1 to ${maxLength} visible ASCII characters without spaces; ${this.advice}`
}

const minLength = 16
/** The maximum length in characters. The head of a request may have 16 KiB. */
const maxLength = 4_096

/**
 * Parses the token in `text`, which came from `source`, and trims white space. Warns about a short token. Fails with
 * `advice` if no client could send the token.
 */
const parseToken = Effect.fnUntraced(function*(text: string, source: string, advice: string) {
  const token = text.trim()
  if (!/^[!-~]+$/.test(token) || token.length > maxLength) return yield* new UnusableAdminToken({ source, advice })
  if (token.length < minLength) {
    yield* Effect.logWarning(
      `${source} is short: use at least ${minLength} characters, or a client of the management port may guess it`
    )
  }
  return Redacted.make(token)
})

export class AdminToken extends Context.Service<AdminToken, Redacted.Redacted>()("petstore/AdminToken") {
  /** The token in `ADMIN_TOKEN`, or else the token that the first start creates and keeps in `DATA_DIR/admin-token`. */
  static readonly layer = Layer.effect(
    AdminToken,
    Effect.gen(function*() {
      const configured = yield* Config.option(Config.Redacted("ADMIN_TOKEN"))
      if (Option.isSome(configured)) {
        return yield* parseToken(Redacted.value(configured.value), "ADMIN_TOKEN", "set another one")
      }
      const directory = yield* dataDirectory
      const file = join(directory, "admin-token")
      const made = `adm_${yield* Secret.randomText(32)}`
      const suffix = yield* Secret.randomText(8)
      const { mode, text } = yield* Effect.try({
        try: () => {
          keep(file, made, suffix)
          return { mode: makePrivate(file), text: readFileSync(file, "utf8") }
        },
        catch: (cause) => new DataDirectoryUnusable({ directory, cause })
      })
      if (mode !== undefined) {
        yield* Effect.logWarning(
          `${file} had mode ${mode}, now 0600: if other users of this machine may have read it, replace the token`
        )
      }
      return yield* parseToken(text, file, "remove the file, and the service makes a new token")
    })
  )
}

/** Makes `file` readable for its owner alone. Returns its former mode in octal if it allowed other users. */
const makePrivate = (file: string): string | undefined => {
  const mode = statSync(file).mode & 0o777
  if ((mode & 0o077) === 0) return undefined
  chmodSync(file, 0o600)
  return mode.toString(8).padStart(4, "0")
}

/**
 * Writes `token` to `file`, unless the file exists. Two processes that start at once both use the first one's token.
 */
const keep = (file: string, token: string, suffix: string): void => {
  if (existsSync(file)) return
  // The file is linked once it is complete, so that no process reads half of it.
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
