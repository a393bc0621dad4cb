import { Context, Data, Effect, FileSystem, Result } from "effect"
import { closeSync, existsSync, fsyncSync, openSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Settings } from "../config/Settings.ts"

export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  readonly cause: unknown
}> {
  override readonly message = `DATA_DIR: the data directory "${this.directory}" cannot be used`
}

export class DataDirectoryParentMissing extends Data.TaggedError("DataDirectoryParentMissing")<{
  readonly directory: string
}> {
  override readonly message =
    `DATA_DIR: "${
      dirname(resolve(this.directory))
    }" does not exist. Create it, or set DATA_DIR to another directory. ` +
    "The service creates only the last part of the path"
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

export class DataDirectoryFailed extends Data.TaggedError("DataDirectoryFailed")<{
  readonly directory: string
  readonly reason: string
}> {
  override readonly message =
    `A file in the data directory "${this.directory}" cannot be written (${this.reason}). This process acknowledges ` +
    `nothing more and exits. Free space or repair the disk, then start the service again.`
}

/** Receives the failure once, when this process must stop using its data directory. */
export const OnDataDirectoryLost = Context.Reference<(error: DataDirectoryFailed | DataDirectoryLost) => void>(
  "petstore/DataDirectory/OnDataDirectoryLost",
  { defaultValue: () => () => {} }
)

/** Makes the entries of a directory durable: its new, renamed and deleted files. */
export const syncDirectory = (directory: string): void => {
  const descriptor = openSync(directory, "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

export const hasEmbeddedDatabase = (directory: string): boolean => existsSync(join(directory, "pgdata", "PG_VERSION"))

export const dataDirectory = Effect.gen(function*() {
  const { makeDirectory } = yield* FileSystem.FileSystem
  const directory = yield* Settings.dataDir.config
  const unusable = (cause: unknown) => new DataDirectoryUnusable({ directory, cause })
  const made = yield* Effect.result(makeDirectory(directory, { mode: 0o700 }))
  if (Result.isSuccess(made)) {
    yield* Effect.try({ try: () => syncDirectory(dirname(resolve(directory))), catch: unusable })
  } else if (made.failure.reason._tag === "NotFound") {
    return yield* new DataDirectoryParentMissing({ directory })
  } else if (made.failure.reason._tag !== "AlreadyExists") return yield* unusable(made.failure)
  return directory
})
