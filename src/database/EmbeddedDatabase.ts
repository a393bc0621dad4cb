/**
 * PostgreSQL inside this process (PGlite), behind the same client as a server's: a `Duplex` that speaks the wire
 * protocol. The data directory has one owner at a time.
 */
import { PgClient } from "@effect/sql-pg"
import { PGlite } from "@electric-sql/pglite"
import { Data, Duration, Effect, Layer, Predicate, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { chmodSync, statSync } from "node:fs"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Duplex } from "node:stream"
import { callbackify } from "node:util"
import { DataDirectoryUnusable } from "../DataDirectory.ts"

export class DataDirectoryInUse extends Data.TaggedError("DataDirectoryInUse")<{ readonly directory: string }> {
  override readonly message =
    `Another process uses the data directory "${this.directory}". Stop it, or set DATA_DIR to another directory.`
}

const sqliteBusy = 5

/**
 * Owns `directory` until the scope closes. SQLite's file lock is the kernel's: it ends with the process, also with
 * `kill -9`, and holds between containers that share the directory, where process ids say nothing.
 */
const lock = (directory: string) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const file = new DatabaseSync(join(directory, "lock"))
        file.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        return file
      },
      catch: (cause) =>
        Predicate.hasProperty(cause, "errcode") && cause.errcode === sqliteBusy
          ? new DataDirectoryInUse({ directory })
          : new DataDirectoryUnusable({ directory, cause })
    }),
    (file) => Effect.sync(() => file.close())
  )

const open = (directory: string) =>
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
    (database) => Effect.promise(() => database.close())
  )

/** The length of the first message in `bytes`, or `undefined` while its head is incomplete. */
const messageLength = (bytes: Buffer, started: boolean): number | undefined => {
  // The first message of a session has no type byte before its length.
  const type = started ? 1 : 0
  return bytes.length < type + 4 ? undefined : type + bytes.readUInt32BE(type)
}

const terminate = 0x58 // "X"

/**
 * Whether the files of `directory` are still those that were opened: what is written to removed ones is gone at the
 * end.
 */
const presence = (directory: string): () => boolean => {
  const file = join(directory, "pgdata/global/pg_control")
  const { ino } = statSync(file)
  return () => statSync(file, { throwIfNoEntry: false })?.ino === ino
}

/** A session with `database`, as the client's socket. PGlite takes whole messages, so writes are put together first. */
const session = (database: PGlite, isThere: () => boolean): Duplex => {
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
    const answer = await database.execProtocolRaw(messages)
    // Before anything is acknowledged.
    if (!isThere()) throw new Error("The data directory is gone.")
    socket.push(answer)
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

/** The embedded database in `directory`, which must be there. */
export const layer = (directory: string) =>
  Layer.unwrap(Effect.gen(function*() {
    yield* lock(directory)
    const database = yield* open(directory)
    const isThere = presence(directory)
    const client = PgClient.layer({
      stream: () => session(database, isThere),
      username: "postgres",
      database: "postgres",
      multiplex: true,
      minConnections: 1,
      maxConnections: 1,
      idleTimeout: Duration.infinity
    })
    return Layer.provideMerge(Layer.effectDiscard(upkeep), client)
  }))
