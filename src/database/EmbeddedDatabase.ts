import { PgClient } from "@effect/sql-pg"
import { PGlite } from "@electric-sql/pglite"
import { Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { chmodSync, realpathSync } from "node:fs"
import { join } from "node:path"
import { Duplex } from "node:stream"
import { callbackify } from "node:util"
import { DataDirectoryLost, DataDirectoryUnusable, OnDataDirectoryLost } from "./DataDirectory.ts"
import * as DirectoryLock from "./DirectoryLock.ts"

/** Closing PGlite writes files, so close it only if this process still owns the data directory. */
const open = (directory: string, isOwned: () => boolean) =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const files = join(directory, "pgdata")
        const database = await PGlite.create(files)
        // PGlite makes its files writable for all users, so deny other users access to their directory.
        chmodSync(files, 0o700)
        return database
      },
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    }),
    (database) => Effect.suspend(() => isOwned() ? Effect.promise(() => database.close()) : Effect.void)
  )

const terminate = 0x58 // "X"

/**
 * Replaces the socket of the PostgreSQL client. Passes complete messages of the wire protocol to PGlite. `checkOwned`
 * throws `DataDirectoryLost` if another process may have taken over the data directory.
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

export const layer = (directory: string) =>
  Layer.unwrap(Effect.gen(function*() {
    // Resolve a symbolic link once at startup, because its target may change while the process runs.
    const path = yield* Effect.try({
      try: () => realpathSync(directory),
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    })
    const onLost = yield* OnDataDirectoryLost
    const isHeld = yield* DirectoryLock.acquire(path)
    // Once a check finds the lock file or `pg_control` missing or replaced, the directory stays lost, even if the file
    // returns: another process may have written to it.
    let lost: DataDirectoryLost | undefined
    const isOwned = () => lost === undefined && isHeld()
    const database = yield* open(path, isOwned)
    const controlFile = "pgdata/global/pg_control"
    const isControlFileUnchanged = DirectoryLock.watchFile(join(path, controlFile))
    const checkOwned = (): void => {
      if (lost !== undefined) throw lost
      const file = !isHeld() ? "lock" : isControlFileUnchanged() ? undefined : controlFile
      if (file === undefined) return
      lost = new DataDirectoryLost({ directory, file })
      onLost(lost)
      throw lost
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
