import { Config, Context, Data, Effect, FileSystem, Layer, Option, Redacted, Result } from "effect"
import { dirname, resolve } from "node:path"
import { randomText } from "../api-keys/ApiKeys.ts"
import * as Brand from "../api/Brand.ts"
import { adminTokenFile, adminTokenForm, Settings } from "../config/Settings.ts"
import { createDirectory, DataDirectoryUnusable, syncDirectory } from "../database/DataDirectory.ts"

export class UnusableAdminToken extends Data.TaggedError("UnusableAdminToken")<{ readonly file: string }> {
  override readonly message =
    `${this.file}: expected ${Settings.adminToken.form}. Remove the file and restart: the service makes a new token`
}

export class AdminToken extends Context.Service<AdminToken, {
  readonly source: string
  readonly token: Redacted.Redacted
}>()("petstore/AdminToken") {
  static readonly layer = Layer.effect(
    AdminToken,
    Effect.gen(function*() {
      const configured = yield* Config.option(Settings.adminToken.config)
      return Option.isSome(configured)
        ? { source: Settings.adminToken.name, token: configured.value }
        : yield* readFile
    })
  )
}

const readFile = Effect.gen(function*() {
  const setting = Settings.dataDir.name
  const directory = yield* createDirectory(yield* Settings.dataDir.config, setting)
  const file = resolve(directory, adminTokenFile)
  const text = yield* Effect.mapError(
    readOrCreate(file),
    (cause) => new DataDirectoryUnusable({ directory, setting, cause })
  )
  const parsed = Result.mapError(adminTokenForm.parse(text), () => new UnusableAdminToken({ file }))
  return { source: file, token: yield* Effect.fromResult(parsed) }
})

const readOrCreate = Effect.fnUntraced(function*(file: string) {
  const fs = yield* FileSystem.FileSystem
  if (!(yield* fs.exists(file))) {
    // Write a temporary file, then link it to `file`. Linking is atomic and never replaces `file`, so no process
    // reads half a token, and processes that start together use the same token. After a power loss, `file` is whole or
    // absent.
    const temporaryFile = `${file}.${yield* randomText(8)}`
    yield* Effect.scoped(writeDurably(temporaryFile, `${Brand.adminTokenPrefix}${yield* randomText(32)}\n`))
    yield* Effect.ensuring(fs.link(temporaryFile, file), Effect.ignore(fs.remove(temporaryFile))).pipe(
      Effect.catchIf(({ reason }) => reason._tag === "AlreadyExists", () => Effect.void)
    )
    yield* Effect.try(() => syncDirectory(dirname(file)))
  }
  const mode = (yield* fs.stat(file)).mode & 0o777
  if ((mode & 0o077) !== 0) {
    yield* fs.chmod(file, 0o600)
    yield* Effect.logWarning(
      `${file} had mode ${mode.toString(8).padStart(4, "0")}, now 0600: ` +
        "if other users of this machine may have read it, replace the token"
    )
  }
  return yield* fs.readFileString(file)
})

const writeDurably = Effect.fnUntraced(function*(path: string, text: string) {
  const fs = yield* FileSystem.FileSystem
  const file = yield* fs.open(path, { flag: "wx", mode: 0o600 })
  yield* file.writeAll(new TextEncoder().encode(text))
  yield* file.sync
})
