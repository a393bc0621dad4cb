/**
 * PostgreSQL inside this process (PGlite), behind the same client as a server's: a `Duplex` that speaks the wire
 * protocol. The data directory has one owner at a time.
 */
import { PgClient } from "@effect/sql-pg"
import { PGlite } from "@electric-sql/pglite"
import { Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { chmodSync, existsSync, realpathSync } from "node:fs"
import { join } from "node:path"
import { Duplex } from "node:stream"
import { callbackify } from "node:util"
import { DataDirectoryLost, DataDirectoryUnusable, OnDataDirectoryLost } from "../config/DataDirectory.ts"
import * as DirectoryLock from "./DirectoryLock.ts"
import { IsShared } from "./MigrationRunner.ts"

/** Opens the database in `directory`. Closing it writes, so the scope closes it only while `isOwned`. */
const open = (directory: string, isOwned: () => boolean) =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const files = join(directory, "pgdata")
        const database = await PGlite.create(files)
        // PGlite makes files that anybody may write.
        chmodSync(files, 0o700)
        return database
      },
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    }),
    (database) => Effect.suspend(() => isOwned() ? Effect.promise(() => database.close()) : Effect.void)
  )

/** The length of the first message in `bytes`, or `undefined` while its head is incomplete. */
const messageLength = (bytes: Buffer, started: boolean): number | undefined => {
  // The first message of a session has no type byte before its length.
  const type = started ? 1 : 0
  return bytes.length < type + 4 ? undefined : type + bytes.readUInt32BE(type)
}

const terminate = 0x58 // "X"

/** Tells whether the process owns the data directory. Each throws `DataDirectoryLost` when it does not. */
interface Ownership {
  readonly checkBeforeStatement: () => void
  readonly checkBeforeResponse: () => void
}

/** A session with `database`, as the client's socket. PGlite takes whole messages, so writes are put together first. */
const session = (database: PGlite, ownership: Ownership): Duplex => {
  let pending: Buffer = Buffer.alloc(0)
  let started = false

  const exchange = async (socket: Duplex): Promise<void> => {
    let end = 0
    while (true) {
      const length = messageLength(pending.subarray(end), started)
      if (length === undefined || pending.length < end + length) break
      // PGlite has one backend for good: the end of a session must not be the end of it.
      if (started && pending[end] === terminate) {
        socket.push(null)
        return
      }
      started = true
      end += length
    }
    if (end === 0) return
    const messages = pending.subarray(0, end)
    pending = pending.subarray(end)
    ownership.checkBeforeStatement()
    const response = await database.execProtocolRaw(messages)
    ownership.checkBeforeResponse()
    socket.push(response)
  }

  return new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
      callbackify(() => exchange(this))(done)
    },
    construct(done) {
      // The one backend may still hold what a session before this one left behind.
      callbackify(async () => {
        ownership.checkBeforeStatement()
        await database.exec("ROLLBACK")
        await database.exec("DISCARD ALL")
      })(done)
    }
  })
}

/** Bytes of the write-ahead log, which is read again at the start after a `kill -9`: half a second. */
const longestLog = 32 * 1024 * 1024

/** Does `work` for as long as the scope lasts, first after an `interval`: no start waits for it. */
const every = <E, R>(interval: Duration.Input, work: Effect.Effect<unknown, E, R>) =>
  work.pipe(
    Effect.catchCause((cause) => Effect.logWarning("The embedded database cannot be kept up", cause)),
    Effect.schedule(Schedule.spaced(interval)),
    Effect.forkScoped
  )

/**
 * What a server does in the background, and nobody in this process would: the log has an end, and rows that are gone
 * make room.
 */
const upkeep = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const checkpoint = Effect.gen(function*() {
    const due = yield* sql`
      SELECT FROM pg_control_checkpoint() WHERE pg_current_wal_lsn() - redo_lsn > ${sql.literal(String(longestLog))}`
    if (due.length > 0) yield* sql`CHECKPOINT`
  })
  yield* every("10 seconds", checkpoint)
  // All else waits meanwhile: 20 ms, and 200 after a million additions.
  yield* every("10 minutes", sql`VACUUM`)
})

/** Longer than a statement takes that another process may still run when its lock is removed. */
const takeoverDelay = Duration.seconds(2)

/**
 * Locks `directory`. Where the lock file of a database is missing or another one, somebody removed or replaced it: a
 * process that still runs notices that before its next statement.
 */
const lock = Effect.fnUntraced(function*(directory: string) {
  const acquired = yield* DirectoryLock.acquire(directory)
  if (acquired.isReplaced && existsSync(join(directory, "pgdata"))) {
    yield* Effect.logWarning(
      `The lock file of the data directory "${directory}" was removed or replaced. Waiting ` +
        `${Duration.format(takeoverDelay)} for a process that may still use it. Never delete the file "lock": the ` +
        "lock of a process that ended is already free."
    )
    yield* Effect.sleep(takeoverDelay)
    // It may be removed again meanwhile.
    if (!acquired.isHeld()) return yield* new DirectoryLock.DataDirectoryInUse({ directory })
  }
  if (acquired.isReplaced) {
    yield* Effect.try({
      try: acquired.record,
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    })
  }
  return acquired
})

/** The embedded database in `directory`, which must exist. */
export const layer = (directory: string) =>
  Layer.unwrap(Effect.gen(function*() {
    // A symbolic link that changes meanwhile must not lead half of the files elsewhere.
    const path = yield* Effect.try({
      try: () => realpathSync(directory),
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    })
    const onLost = yield* OnDataDirectoryLost
    const { isHeld } = yield* lock(path)
    // Once lost, the directory stays lost, also when the file comes back: another process may have written meanwhile.
    let lost: DataDirectoryLost | undefined
    const check = (isUnchanged: () => boolean, file: string): void => {
      if (lost === undefined && !isUnchanged()) {
        lost = new DataDirectoryLost({ directory, file })
        onLost(lost)
      }
      if (lost !== undefined) throw lost
    }
    const checkLock = () => check(isHeld, "lock")
    const isOwned = () => lost === undefined && isHeld()
    const database = yield* open(path, isOwned)
    const controlFile = "pgdata/global/pg_control"
    const isControlFileUnchanged = DirectoryLock.watchFile(join(path, controlFile))
    const ownership: Ownership = {
      checkBeforeStatement: checkLock,
      checkBeforeResponse: () => {
        checkLock()
        check(isControlFileUnchanged, controlFile)
      }
    }
    const client = PgClient.layer({
      stream: () => session(database, ownership),
      username: "postgres",
      database: "postgres",
      multiplex: true,
      minConnections: 1,
      maxConnections: 1,
      idleTimeout: Duration.infinity
    })
    // A process without requests runs no statements, and must notice the loss as well.
    yield* Effect.try(ownership.checkBeforeResponse).pipe(
      Effect.ignore,
      Effect.schedule(Schedule.spaced("1 second")),
      Effect.forkScoped
    )
    return Layer.effectDiscard(upkeep).pipe(
      Layer.provideMerge(client),
      Layer.provideMerge(Layer.succeed(IsShared, false))
    )
  }))
