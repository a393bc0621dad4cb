/** `DATA_DIR`: where what belongs to this installation is kept, the embedded database and the admin token. */
import { Config, Data, Effect, Predicate } from "effect"
import { mkdirSync } from "node:fs"

export class DataDirectoryUnusable extends Data.TaggedError("DataDirectoryUnusable")<{
  readonly directory: string
  readonly cause: unknown
}> {
  override readonly message = `The data directory "${this.directory}" cannot be used`
}

/** The path of the directory, which is made if its parent is there. */
export const dataDirectory = Effect.gen(function*() {
  const directory = yield* Config.String("DATA_DIR").pipe(Config.withDefault("./data"))
  yield* Effect.try({
    // For nobody else to read, let alone to write.
    try: () => mkdirSync(directory, { mode: 0o700 }),
    catch: (cause) => new DataDirectoryUnusable({ directory, cause })
  }).pipe(
    Effect.catchIf(
      ({ cause }) => Predicate.hasProperty(cause, "code") && cause.code === "EEXIST",
      () => Effect.void
    )
  )
  return directory
})
