/**
 * PostgreSQL inside this process (PGlite), behind the same client as a server: a `Duplex` that speaks the wire
 * protocol. The data directory has one owner at a time.
 */
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

/** Opens the database in `directory`. Closing it writes, so the scope closes it only while `isOwned`. */
const open = (directory: string, isOwned: () => boolean) =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const files = join(directory, "pgdata")
        const database = await PGlite.create(files)
        // PGlite creates files that every user may write.
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

/** Checks of the ownership of the data directory. Each throws `DataDirectoryLost` after the loss. */
interface Ownership {
  readonly checkBeforeStatement: () => void
  readonly checkBeforeResponse: () => void
}

/**
 * A session with `database` in the form of the client's socket. PGlite takes whole messages, so writes are joined
 * first.
 */
const session = (database: PGlite, ownership: Ownership): Duplex => {
  let pending: Buffer = Buffer.alloc(0)
  let started = false

  const exchange = async (socket: Duplex): Promise<void> => {
    let end = 0
    while (true) {
      const length = messageLength(pending.subarray(end), started)
      if (length === undefined || pending.length < end + length) break
      // PGlite has one backend for the whole process. The end of a session must not end the backend.
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
      // The backend may still have the state of the session before.
      callbackify(async () => {
        ownership.checkBeforeStatement()
        await database.exec("ROLLBACK")
        await database.exec("DISCARD ALL")
      })(done)
    }
  })
}

/** The maximum bytes of the write-ahead log. A start after a `kill -9` replays it, which takes half a second. */
const maxLogBytes = 32 * 1024 * 1024

/** Runs `work` every `interval` until the scope closes, first after one `interval`, so that no start waits for it. */
const every = <E, R>(interval: Duration.Input, work: Effect.Effect<unknown, E, R>) =>
  work.pipe(
    Effect.catchCause((cause) => Effect.logWarning("The maintenance of the embedded database failed", cause)),
    Effect.schedule(Schedule.spaced(interval)),
    Effect.forkScoped
  )

/** The maintenance that a server does in the background: checkpoints bound the log, and VACUUM frees deleted rows. */
const upkeep = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const checkpoint = Effect.gen(function*() {
    const due = yield* sql`
      SELECT FROM pg_control_checkpoint() WHERE pg_current_wal_lsn() - redo_lsn > ${sql.literal(String(maxLogBytes))}`
    if (due.length > 0) yield* sql`CHECKPOINT`
  })
  yield* every("10 seconds", checkpoint)
  // All statements wait meanwhile: 20 ms, or 200 ms after a million creates.
  yield* every("10 minutes", sql`VACUUM`)
})

/** The embedded database in `directory`, which must exist. */
export const layer = (directory: string) =>
  Layer.unwrap(Effect.gen(function*() {
    // The symbolic link is resolved once. If it changed later, the files would be in two places.
    const path = yield* Effect.try({
      try: () => realpathSync(directory),
      catch: (cause) => new DataDirectoryUnusable({ directory, cause })
    })
    const onLost = yield* OnDataDirectoryLost
    const isHeld = yield* DirectoryLock.acquire(path)
    // A lost directory stays lost, even if the file comes back: another process may have written meanwhile.
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
    // A process without requests runs no statements, and must also notice the loss.
    yield* Effect.try(ownership.checkBeforeResponse).pipe(
      Effect.ignore,
      Effect.schedule(Schedule.spaced("1 second")),
      Effect.forkScoped
    )
    return Layer.provideMerge(Layer.effectDiscard(upkeep), client)
  }))
