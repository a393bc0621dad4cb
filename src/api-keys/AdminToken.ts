import { Config, Context, Data, Effect, Layer, Option, Redacted, Result } from "effect"
import { chmodSync, existsSync, linkSync, readFileSync, statSync, unlinkSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { adminTokenFile, adminTokenForm, Settings } from "../config/Settings.ts"
import { dataDirectory, DataDirectoryUnusable } from "../database/DataDirectory.ts"
import { randomText } from "./ApiKeys.ts"

export class UnusableAdminToken extends Data.TaggedError("UnusableAdminToken")<{ readonly file: string }> {
  override readonly message =
    `${this.file}: expected ${Settings.adminToken.form}. Remove the file and restart: the service makes a new token`
}

export const adminTokenPlace = Effect.gen(function*() {
  if (Option.isSome(yield* Config.option(Settings.adminToken.config))) return Settings.adminToken.name
  return resolve(yield* Settings.dataDir.config, adminTokenFile)
})

const minLength = 16

export class AdminToken extends Context.Service<AdminToken, Redacted.Redacted>()("petstore/AdminToken") {
  static readonly layer = Layer.effect(
    AdminToken,
    Effect.gen(function*() {
      const configured = yield* Config.option(Settings.adminToken.config)
      const { source, token } = Option.isSome(configured)
        ? { source: Settings.adminToken.name, token: configured.value }
        : yield* readFile
      if (Redacted.value(token).length < minLength) {
        yield* Effect.logWarning(
          `${source} is unsafe: use at least ${minLength} characters, or a client of the management port may guess it`
        )
      }
      return token
    })
  )
}

const readFile = Effect.gen(function*() {
  const directory = yield* dataDirectory
  const file = join(directory, adminTokenFile)
  const newToken = `adm_${yield* randomText(32)}`
  const temporarySuffix = yield* randomText(8)
  const { mode, text } = yield* Effect.try({
    try: () => {
      createFile(file, newToken, temporarySuffix)
      return { mode: restrictMode(file), text: readFileSync(file, "utf8") }
    },
    catch: (cause) => new DataDirectoryUnusable({ directory, cause })
  })
  if (mode !== undefined) {
    yield* Effect.logWarning(
      `${file} had mode ${mode}, now 0600: if other users of this machine may have read it, replace the token`
    )
  }
  const parsed = Result.mapError(adminTokenForm.parse(text), () => new UnusableAdminToken({ file }))
  return { source: file, token: yield* Effect.fromResult(parsed) }
})

/** Makes the file inaccessible to other users. If they had access, returns the previous mode in octal. */
const restrictMode = (file: string): string | undefined => {
  const mode = statSync(file).mode & 0o777
  if ((mode & 0o077) === 0) return undefined
  chmodSync(file, 0o600)
  return mode.toString(8).padStart(4, "0")
}

/** Creates `file` unless it exists. Processes that start together all use the token of the process that creates it. */
const createFile = (file: string, token: string, temporarySuffix: string): void => {
  if (existsSync(file)) return
  // Write a temporary file, then link it to `file`. Linking is atomic, so no process reads half a token.
  const temporaryFile = `${file}.${temporarySuffix}`
  writeFileSync(temporaryFile, `${token}\n`, { mode: 0o600 })
  try {
    linkSync(temporaryFile, file)
  } catch (error) {
    if (!existsSync(file)) throw error
  } finally {
    unlinkSync(temporaryFile)
  }
}
