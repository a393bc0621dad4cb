import { Data, Effect, Predicate, type Scope } from "effect"
import { closeSync, openSync, statSync } from "node:fs"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { DataDirectoryUnusable, syncDirectory } from "./DataDirectory.ts"

/*
 * Laws of the lock of a directory:
 * 1. At most one process holds the lock of one lock file. While it does, `acquire` in a second process fails at once
 *    with `DataDirectoryInUse`. The holder must not call `acquire` again: that would release its own lock (POSIX).
 * 2. A process that ends, also by `kill -9`, releases its lock. So does the end of the scope of `acquire`. The lock
 *    file stays.
 * 3. `acquire` returns a check for the holder. The check returns false while the lock file is missing or replaced, else
 *    true, so that the holder can stop before its next statement. The check neither takes nor releases a lock.
 * 4. After the file was replaced, a second process can hold the new lock. The first one learns this from its check.
 */

export class DataDirectoryInUse extends Data.TaggedError("DataDirectoryInUse")<{
  readonly directory: string
  readonly setting: string
}> {
  override readonly message =
    `Another process is using the data directory "${this.directory}". Stop that process, or set ${this.setting} to ` +
    `another directory. Never delete or replace the file "lock" in it: a process releases its lock when it exits.`
}

const sqliteBusy = 5

/**
 * Returns a function that tells whether `path` still has the same inode. It uses `stat`, because opening and closing
 * the file would release this process's POSIX locks on the file.
 */
export const watchFile = (path: string): () => boolean => {
  const watched = statSync(path, { bigint: true })
  return () => {
    const file = statSync(path, { bigint: true, throwIfNoEntry: false })
    return file !== undefined && file.ino === watched.ino && file.dev === watched.dev
  }
}

/**
 * Locks a directory with SQLite's file lock. Unlike a PID file, the lock is released when the process exits, and works
 * between containers of one machine. The returned function is the check of law 3.
 */
export const acquire = (
  directory: string,
  setting: string
): Effect.Effect<() => boolean, DataDirectoryInUse | DataDirectoryUnusable, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const path = join(directory, "lock")
        closeSync(openSync(path, "a", 0o600))
        syncDirectory(directory)
        const isHeld = watchFile(path)
        const file = new DatabaseSync(path)
        try {
          file.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
          if (!isHeld()) throw new Error("The lock file was removed or replaced during startup. Start again.")
          return { file, isHeld }
        } catch (cause) {
          file.close()
          throw cause
        }
      },
      catch: (cause) =>
        Predicate.hasProperty(cause, "errcode") && cause.errcode === sqliteBusy
          ? new DataDirectoryInUse({ directory, setting })
          : new DataDirectoryUnusable({ directory, setting, cause })
    }),
    ({ file }) => Effect.sync(() => file.close())
  ).pipe(Effect.map(({ isHeld }) => isHeld))
