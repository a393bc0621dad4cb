import { Context, Data, Effect } from "effect"
import { existsSync, mkdirSync } from "node:fs"
import { Settings } from "../config/Settings.ts"

export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  readonly cause: unknown
}> {
  override readonly message = `The data directory "${this.directory}" cannot be used`
}

export class DataDirectoryLost extends Data.TaggedError("DataDirectoryLost")<{
  readonly directory: string
  readonly file: string
}> {
  override readonly message =
    `The file "${this.file}" of the data directory "${this.directory}" was removed or replaced while this process ` +
    `used it. Another process may own the directory now, so this one stops writing to it and ends. ` +
    `Start one process on the directory. Never delete or replace a file in it, the file "lock" included.`
}

export const OnDataDirectoryLost = Context.Reference<(error: DataDirectoryLost) => void>(
  "petstore/DataDirectory/OnDataDirectoryLost",
  { defaultValue: () => () => {} }
)

export const dataDirectory = Effect.gen(function*() {
  const directory = yield* Settings.dataDir.config
  yield* Effect.try({
    try: () => mkdirSync(directory, { mode: 0o700 }),
    catch: (cause) => new DataDirectoryUnusable({ directory, cause })
  }).pipe(Effect.catchIf(() => existsSync(directory), () => Effect.void))
  return directory
})
