/** The exclusive lock of a data directory. */
import { Data, Effect, Predicate, type Scope } from "effect"
import { closeSync, existsSync, openSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { DataDirectoryUnusable } from "../config/DataDirectory.ts"

export class DataDirectoryInUse extends Data.TaggedError("DataDirectoryInUse")<{ readonly directory: string }> {
  override readonly message =
    `Another process uses the data directory "${this.directory}". Stop it, or set DATA_DIR to another directory. ` +
    `Never delete or replace the file "lock" in it: the lock of a process that ended is already free.`
}

const sqliteBusy = 5
const sqliteNotADatabase = 26

const hasCode = (cause: unknown, property: "code" | "errcode", code: string | number): boolean =>
  Predicate.hasProperty(cause, property) && cause[property] === code

const statOptions = { bigint: true, throwIfNoEntry: false } as const

/**
 * Returns a predicate that tells whether `path` is still the file that it is now, by device and inode. It costs one
 * `stat`, about 2.5 µs. It does not open the file: closing a file releases the POSIX locks that the process has on it.
 */
export const watchFile = (path: string): () => boolean => {
  const watched = statSync(path, { bigint: true })
  return () => {
    const file = statSync(path, statOptions)
    return file !== undefined && file.ino === watched.ino && file.dev === watched.dev
  }
}

/** The inode of the lock file of the process before, as that process recorded it. */
const recordedInode = (path: string): string | undefined => existsSync(path) ? readFileSync(path, "utf8") : undefined

const lockFile = (path: string): DatabaseSync => {
  const file = new DatabaseSync(path)
  try {
    file.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
    return file
  } catch (cause) {
    file.close()
    throw cause
  }
}

export interface DirectoryLock {
  /**
   * Whether the lock file at its path is still the one that this process holds. A process that starts after the file
   * was removed or replaced gets a lock of its own on the new file.
   */
  readonly isHeld: () => boolean
  /** Whether the lock file was replaced since the previous process had the lock. */
  readonly isReplaced: boolean
  /** Records which file the lock file is, for the next process. */
  readonly record: () => void
}

/**
 * Locks `directory` until the scope closes. The kernel holds SQLite's file lock, which ends with the process, also
 * after `kill -9`. It works between containers that share the directory, where process ids mean nothing.
 */
export const acquire = (
  directory: string
): Effect.Effect<DirectoryLock, DataDirectoryInUse | DataDirectoryUnusable, Scope.Scope> => {
  const path = join(directory, "lock")
  return Effect.acquireRelease(
    Effect.try({
      try: () => {
        closeSync(openSync(path, "a", 0o600))
        const isHeld = watchFile(path)
        let file: DatabaseSync
        try {
          file = lockFile(path)
        } catch (cause) {
          if (!hasCode(cause, "errcode", sqliteNotADatabase)) throw cause
          // Another program wrote into the file, and no process locks it: SQLite could read it otherwise.
          truncateSync(path)
          file = lockFile(path)
        }
        const inode = String(statSync(path, { bigint: true }).ino)
        const recordPath = `${path}.inode`
        const isReplaced = recordedInode(recordPath) !== inode
        const record = () => writeFileSync(recordPath, inode, { mode: 0o600 })
        if (isHeld()) return { file, isHeld, isReplaced, record }
        file.close()
        throw new Error("The lock file was removed or replaced during the start.")
      },
      catch: (cause) =>
        hasCode(cause, "errcode", sqliteBusy)
          ? new DataDirectoryInUse({ directory })
          : new DataDirectoryUnusable({ directory, cause })
    }),
    ({ file }) => Effect.sync(() => file.close())
  )
}
