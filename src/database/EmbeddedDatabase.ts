import { PgClient } from "@effect/sql-pg"
import { PGlite } from "@electric-sql/pglite"
import { Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { chmodSync, realpathSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { Duplex } from "node:stream"
import { callbackify } from "node:util"
import {
  DataDirectoryFailed,
  DataDirectoryLost,
  DataDirectoryUnusable,
  hasEmbeddedDatabase,
  type OnDirectoryLost,
  syncDirectory
} from "./DataDirectory.ts"
import * as DirectoryLock from "./DirectoryLock.ts"
import { DurableFiles, syncTree } from "./DurableFiles.ts"

/**
 * PGlite turns fsync off by default (`-F`). Without `-F`, the WAL must use fsync, because PGlite's fdatasync does
 * nothing.
 */
const startParams = [...PGlite.defaultStartParams.filter((param) => param !== "-F"), "-c", "wal_sync_method=fsync"]

const openFiles = async (files: string, onFailure: (reason: string) => void): Promise<PGlite> => {
  const database = await PGlite.create(files, { fs: new DurableFiles(files, onFailure), startParams })
  // PGlite makes most of its files writable for all users, so deny other users access to their directory.
  chmodSync(files, 0o700)
  return database
}

/**
 * Makes a new cluster (the files of a database server) under another name, because a crash can leave only some of its
 * files. PGlite copies most of them without an fsync, so sync all of them before the cluster gets its name.
 */
const makeCluster = async (directory: string, onFailure: (reason: string) => void): Promise<void> => {
  const files = join(directory, "pgdata.new")
  rmSync(files, { recursive: true, force: true })
  let failure: string | undefined
  const database = await openFiles(files, (reason) => onFailure(failure = reason))
  await database.close()
  if (failure !== undefined) throw new Error(failure)
  await syncTree(files)
  renameSync(files, join(directory, "pgdata"))
  syncDirectory(directory)
}

/** Closing PGlite writes files, so close it only if this process still owns the data directory. */
const open = (directory: string, setting: string, isOwned: () => boolean, onFailure: (reason: string) => void) =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        if (!hasEmbeddedDatabase(directory)) await makeCluster(directory, onFailure)
        return openFiles(join(directory, "pgdata"), onFailure)
      },
      catch: (cause) => new DataDirectoryUnusable({ directory, setting, cause })
    }),
    (database) => Effect.suspend(() => isOwned() ? Effect.promise(() => database.close()) : Effect.void)
  )

const terminate = 0x58 // "X"

/**
 * Replaces the socket of the PostgreSQL client, and passes complete messages of the wire protocol to PGlite.
 * `checkOwned` throws `DataDirectoryLost` if another process may have taken over the data directory, and
 * `DataDirectoryFailed` once `DurableFiles` has reported a failure.
 */
const session = (database: PGlite, checkOwned: () => void): Duplex => {
  let pending: Buffer = Buffer.alloc(0)
  let started = false

  const exchange = async (socket: Duplex): Promise<void> => {
    let end = 0
    while (true) {
      // Unlike all later messages, PostgreSQL's startup message has no type byte before its length.
      const lengthAt = started ? end + 1 : end
      if (pending.length < lengthAt + 4) break
      const next = lengthAt + pending.readUInt32BE(lengthAt)
      if (pending.length < next) break
      // Do not pass Terminate to PGlite, because it would end the backend that all sessions share.
      if (started && pending[end] === terminate) return void socket.push(null)
      started = true
      end = next
    }
    if (end === 0) return
    const messages = pending.subarray(0, end)
    pending = pending.subarray(end)
    checkOwned()
    const response = await database.execProtocolRaw(messages)
    checkOwned()
    socket.push(response)
  }

  return new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
      callbackify(() => exchange(this))(done)
    },
    construct(done) {
      callbackify(async () => {
        checkOwned()
        await database.exec("ROLLBACK")
        await database.exec("DISCARD ALL")
      })(done)
    }
  })
}

/** `upkeep` runs CHECKPOINT after this much new WAL, which keeps recovery after `kill -9` short. */
const maxWalBytes = 32 * 1024 * 1024

const every = <E, R>(interval: Duration.Input, work: Effect.Effect<unknown, E, R>) =>
  work.pipe(
    Effect.catchCause((cause) => Effect.logWarning("The maintenance of the embedded database failed", cause)),
    Effect.schedule(Schedule.spaced(interval)),
    Effect.forkScoped
  )

/** PGlite lacks PostgreSQL's background processes, so checkpoints and vacuums must run here. */
const upkeep = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const checkpoint = Effect.gen(function*() {
    const due = yield* sql`
      SELECT FROM pg_control_checkpoint() WHERE pg_current_wal_lsn() - redo_lsn > ${sql.literal(String(maxWalBytes))}`
    if (due.length > 0) yield* sql`CHECKPOINT`
  })
  yield* every("10 seconds", checkpoint)
  yield* every("10 minutes", sql`VACUUM`)
})

/** The embedded database in an existing directory. `setting` is the name of its setting, for errors. */
export const layer = (directory: string, setting: string, onLost: OnDirectoryLost) =>
  Layer.unwrap(Effect.gen(function*() {
    // Resolve a symbolic link once at startup, because its target may change while the process runs.
    const path = yield* Effect.try({
      try: () => realpathSync(directory),
      catch: (cause) => new DataDirectoryUnusable({ directory, setting, cause })
    })
    const isHeld = yield* DirectoryLock.acquire(path, setting)
    // Once a check finds the lock file or `pg_control` missing or replaced, the directory stays lost, even if the file
    // returns: another process may have written to the directory. It is also lost once `DurableFiles` reports a
    // failure.
    let lost: DataDirectoryFailed | DataDirectoryLost | undefined
    let isOpen = false
    const lose = (error: DataDirectoryFailed | DataDirectoryLost) => {
      lost = error
      if (isOpen) onLost(error)
    }
    const isOwned = () => lost === undefined && isHeld()
    const opened = open(path, setting, isOwned, (reason) => lose(new DataDirectoryFailed({ directory, reason })))
    // After a failed change of a file, PGlite can still open, or fail later with an error that does not name the file.
    // So fail with `lost` if it is set, whatever the result.
    const result = yield* Effect.result(opened)
    const database = yield* lost === undefined ? Effect.fromResult(result) : Effect.fail(lost)
    isOpen = true
    const controlFile = "pgdata/global/pg_control"
    const isControlFileUnchanged = DirectoryLock.watchFile(join(path, controlFile))
    const checkOwned = (): void => {
      if (lost !== undefined) throw lost
      const file = !isHeld() ? "lock" : isControlFileUnchanged() ? undefined : controlFile
      if (file === undefined) return
      const error = new DataDirectoryLost({ directory, file })
      lose(error)
      throw error
    }
    const client = PgClient.layer({
      stream: () => session(database, checkOwned),
      username: "postgres",
      database: "postgres",
      multiplex: true,
      minConnections: 1,
      maxConnections: 1,
      idleTimeout: Duration.infinity
    })
    yield* every("1 second", Effect.ignore(Effect.try(checkOwned)))
    return Layer.provideMerge(Layer.effectDiscard(upkeep), client)
  }))
