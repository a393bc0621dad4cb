import { Data, Effect, FileSystem, Result } from "effect"
import { closeSync, existsSync, fsyncSync, openSync } from "node:fs"
import { dirname, join, resolve } from "node:path"

export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  /** The name of the setting that has the directory's path. */
  readonly setting: string
  readonly cause: unknown
}> {
  override readonly message = `${this.setting}: the data directory "${this.directory}" cannot be used`
}

export class DataDirectoryParentMissing extends Data.TaggedError("DataDirectoryParentMissing")<{
  readonly directory: string
  readonly setting: string
}> {
  override readonly message =
    `${this.setting}: "${dirname(resolve(this.directory))}" does not exist. Create it, or set ${this.setting} to ` +
    "another directory. The service creates only the last part of the path"
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

/**
 * Called with the failure when this process must stop using the data directory of its open database. If the database
 * cannot open, its layer fails instead.
 */
export type OnDirectoryLost = (error: DataDirectoryFailed | DataDirectoryLost) => void

/** Makes the changes of a directory's entries durable: its new, renamed and deleted files. */
export const syncDirectory = (directory: string): void => {
  const descriptor = openSync(directory, "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

export const hasEmbeddedDatabase = (directory: string): boolean => existsSync(join(directory, "pgdata", "PG_VERSION"))

/** Creates the data directory, unless it exists, and returns its path. Errors name the setting `setting`. */
export const createDirectory = Effect.fnUntraced(function*(directory: string, setting: string) {
  const { makeDirectory } = yield* FileSystem.FileSystem
  const unusable = (cause: unknown) => new DataDirectoryUnusable({ directory, setting, cause })
  const made = yield* Effect.result(makeDirectory(directory, { mode: 0o700 }))
  if (Result.isSuccess(made)) {
    yield* Effect.try({ try: () => syncDirectory(dirname(resolve(directory))), catch: unusable })
  } else if (made.failure.reason._tag === "NotFound") {
    return yield* new DataDirectoryParentMissing({ directory, setting })
  } else if (made.failure.reason._tag !== "AlreadyExists") return yield* unusable(made.failure)
  return directory
})
