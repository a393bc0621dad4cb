import { Context, Data, Effect, FileSystem } from "effect"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { Settings } from "../config/Settings.ts"

export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  readonly cause: unknown
}> {
  override readonly message = `DATA_DIR: the data directory "${this.directory}" cannot be used`
}

export class DataDirectoryLost extends Data.TaggedError("DataDirectoryLost")<{
  readonly directory: string
  readonly file: string
}> {
  override readonly message =
    `The file "${this.file}" in the data directory "${this.directory}" was removed or replaced while this process ` +
    `was using it. Another process may now own the directory, so this process stops writing to it and exits. ` +
    `Run only one process per data directory. Never delete or replace a file in it, including "lock".`
}

export const OnDataDirectoryLost = Context.Reference<(error: DataDirectoryLost) => void>(
  "petstore/DataDirectory/OnDataDirectoryLost",
  { defaultValue: () => () => {} }
)

export const hasEmbeddedDatabase = (directory: string): boolean => existsSync(join(directory, "pgdata", "PG_VERSION"))

export const dataDirectory = Effect.gen(function*() {
  const { makeDirectory } = yield* FileSystem.FileSystem
  const directory = yield* Settings.dataDir.config
  yield* Effect.catchTag(
    makeDirectory(directory, { mode: 0o700 }),
    "PlatformError",
    (cause) => cause.reason._tag === "AlreadyExists" ? Effect.void : new DataDirectoryUnusable({ directory, cause })
  )
  return directory
})
