/** Reads `DATA_DIR`, the directory of this installation's embedded database and admin token, and creates it. */
import { Context, Data, Effect } from "effect"
import { existsSync, mkdirSync } from "node:fs"
import { Settings } from "../config/Settings.ts"

/** The data directory does not exist and cannot be created, or the process cannot use it. `cause` says why. */
export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  readonly cause: unknown
}> {
  override readonly message = `The data directory "${this.directory}" cannot be used`
}

/** A file that this process needs for its ownership of the directory was removed or replaced. */
export class DataDirectoryLost extends Data.TaggedError("DataDirectoryLost")<{
  readonly directory: string
  readonly file: string
}> {
  override readonly message =
    `The file "${this.file}" of the data directory "${this.directory}" was removed or replaced while this process ` +
    `used it. Another process may own the directory now, so this one stops writing to it and ends. ` +
    `Start one process on the directory. Never delete or replace a file in it, the file "lock" included.`
}

/** The function to call, once, when this process has lost its data directory. `main.ts` ends the process. */
export const OnDataDirectoryLost = Context.Reference<(error: DataDirectoryLost) => void>(
  "petstore/DataDirectory/OnDataDirectoryLost",
  { defaultValue: () => () => {} }
)

/**
 * The path from `DATA_DIR`. Creates the directory if it does not exist and its parent does.
 * Fails with `DataDirectoryUnusable` or a `ConfigError`.
 */
export const dataDirectory = Effect.gen(function*() {
  const directory = yield* Settings.dataDir.config
  yield* Effect.try({
    // Only the user of this process can read and write the directory: it holds the admin token and all data.
    try: () => mkdirSync(directory, { mode: 0o700 }),
    catch: (cause) => new DataDirectoryUnusable({ directory, cause })
  }).pipe(Effect.catchIf(() => existsSync(directory), () => Effect.void))
  return directory
})
