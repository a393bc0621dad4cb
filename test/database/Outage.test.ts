import { assert, it } from "@effect/vitest"
import { Cause, Clock, Effect, Exit, Layer, Logger, Metric } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { cpSync, renameSync, rmSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { databaseNames } from "../../src/config/RoomOptions.ts"
import * as Database from "../../src/database/Database.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import * as Outage from "../../src/database/Outage.ts"
import { databaseAt, dataDirectory, hasServer, queryIn, temporaryDatabaseUrl } from "../support/Databases.ts"
import { untilTrue } from "../support/Process.ts"

const withCode = (code: string, text = "") => Object.assign(new Error(text), { code })
const unknown = (code: string) => new SqlError.UnknownError({ cause: withCode(code) })
const pooler = (text: string) => new SqlError.ConnectionError({ cause: withCode("08P01", text) })

// `test/processes/faults.test.ts` and `main.test.ts` cause the other outages.
it.effect.each<readonly [string, later: string, atStart: boolean, SqlError.SqlErrorReason | Cause.TimeoutError]>([
  ["a server behind PgBouncer that starts", "503", true, pooler("the database system is starting up")],
  ["a parameter that PgBouncer rejects", "503", false, pooler("unsupported startup parameter: statement_timeout")],
  ["a rejected user", "503", false, new SqlError.AuthenticationError({ cause: withCode("28P01") })],
  ["a failed system call", "503", false, unknown("58030")],
  ["an object in a wrong state", "503", false, unknown("55000")],
  ["a missing database", "503", false, unknown("3D000")],
  ["a missing prepared statement", "503", false, unknown("26000")],
  ["a read-only server", "503, and says that reads work", true, unknown("25006")],
  ["a closed connection", "503", true, new SqlError.ConnectionError({ cause: new Error("was\nclosed") })],
  ["a timeout", "503", false, new Cause.TimeoutError("too slow")],
  ["a statement that waits for a lock", "503", false, new SqlError.StatementTimeoutError({ cause: withCode("57014") })],
  ["a server without TLS", "503", false, new SqlError.ConnectionError({ cause: new Error("does not support TLS") })],
  ["a missing table", "a defect", false, unknown("42P01")]
])("After %s a statement gets %s, and a start waits: %s", ([, later, atStart, reason]) =>
  Effect.gen(function*() {
    const lines: Array<string> = []
    const failure = Cause.isTimeoutError(reason) ? reason : new SqlError.SqlError({ reason })
    assert.strictEqual(SqlError.isSqlError(failure) && Outage.isTransientAtStart(failure), atStart)
    const error = yield* Outage.failWith(databaseErrors)(Effect.fail(failure)).pipe(
      Effect.catchDefect((defect) => Effect.fail({ defect })),
      Effect.flip,
      Effect.provide(Logger.layer([Logger.make(({ cause, logLevel, message }) => {
        assert.isEmpty(cause.reasons)
        lines.push(`${logLevel}: ${String(message)}`)
      })]))
    )
    if (error instanceof ServiceUnavailable) {
      assert.strictEqual(error.message.includes("Reads work") ? "503, and says that reads work" : "503", later)
      assert.match(error.message, /^The database [\w -]+\.[\w ;]+\.$/)
      assert.match(lines.join("\n"), /^Error: A database statement failed: .*$/)
    } else assert.deepStrictEqual([error, lines, later], [{ defect: failure }, [], "a defect"])
  }))

it.each([
  "57P03",
  "53300",
  "25006",
  "ECONNREFUSED",
  "ENOENT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ETIMEDOUT"
])(
  "A start waits for the server after %s",
  (code) => {
    for (const reason of [unknown(code), new SqlError.ConnectionError({ cause: withCode(code) })]) {
      assert.isTrue(Outage.isTransientAtStart(new SqlError.SqlError({ reason })))
    }
  }
)

it.effect("A start fails if no server is available within half a minute, and logs one line without the password", () =>
  Effect.gen(function*() {
    const lines: Array<string> = []
    const database = databaseAt("postgres://nobody:secret@127.0.0.1:1/none")
    const start = Effect.flip(Effect.scoped(Layer.build(database))).pipe(
      Effect.provide(
        Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))])
      )
    )
    // Each attempt takes real time. The clock advances by a second once the attempt may have failed.
    const second = Effect.andThen(TestClock.withLive(Effect.sleep("20 millis")), TestClock.adjust("1 second"))
    yield* Effect.raceFirst(start, Effect.forever(second))
    assert.isAtLeast(yield* Clock.currentTimeMillis, 29_000)
    // An attempt on a busy machine can take some steps of the clock.
    assert.isBelow(yield* Clock.currentTimeMillis, 59_000)
    const waiting = /^Warn Waiting for the database: DATABASE_URL: the database cannot be used: .*ECONNREFUSED.*$/
    assert.match(lines.join("\n"), waiting)
    assert.notInclude(lines[0], "secret")
  }))

it.effect("A server in recovery is named, and not migrated", () =>
  Effect.gen(function*() {
    const standby = (() => Effect.succeed([{ isInRecovery: true }])) as unknown as SqlClient.SqlClient
    const failure = yield* Effect.flip(
      Effect.provideService(Database.runMigrations(databaseNames), SqlClient.SqlClient, standby)
    )
    assert.match(failure.message, /^The server is in recovery and accepts no writes\./)
  }))

it.live.each(["lock", "pgdata/global/pg_control"])(
  "The embedded database is lost once %s was replaced, even if it comes back",
  (file) =>
    Effect.gen(function*() {
      const directory = yield* dataDirectory
      const lost: Array<string> = []
      const database = EmbeddedDatabase.layer(directory, "DATA_DIR", (error) =>
        void lost.push("file" in error ? error.file : error.reason))
      const path = join(directory, file)
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        renameSync(path, `${path}.old`)
        cpSync(`${path}.old`, path)
        assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
        renameSync(`${path}.old`, path)
        assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
        assert.deepStrictEqual(lost, [file])
      }).pipe(Effect.provide(database))
    })
)

it.live.skipIf(!hasServer)(
  "DATABASE_MAX_CONNECTIONS are open under load, and their gauge falls when they close",
  () =>
    Effect.gen(function*() {
      const gauges = Effect.map(Metric.snapshot, (metrics) => metrics.map(({ state }) => Reflect.get(state, "value")))
      const whileOpen = Effect.flatMap(SqlClient.SqlClient, (sql) => {
        const own = sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type LIKE 'client%'`
        const load = Effect.replicateEffect(sql`SELECT pg_sleep(0.1)`, 30, { concurrency: 30 })
        return Effect.andThen(load, Effect.all([gauges, own]))
      })
      const database = databaseAt(yield* temporaryDatabaseUrl, { DATABASE_MAX_CONNECTIONS: "3" })
      const [[maximum, open], sessions] = yield* Effect.provide(whileOpen, database)
      assert.deepStrictEqual([maximum, open, sessions.length], [3, 3, 3])
      yield* untilTrue(Effect.map(gauges, ([, open]) => open === 0))
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()))
)

it.live("The embedded database stays in place when a symbolic link to it changes", () =>
  Effect.gen(function*() {
    const [directory, other] = [yield* dataDirectory, yield* dataDirectory]
    const link = join(other, "link")
    symlinkSync(directory, link)
    yield* queryIn(link)((sql) => {
      rmSync(link)
      symlinkSync(other, link)
      return sql`INSERT INTO pets (name, category_id) SELECT repeat('x', 1000), i FROM generate_series(1, 10000) AS i`
    })
    assert.lengthOf(yield* queryIn(directory)((sql) => sql`SELECT FROM pets`), 10_000)
    assert.isEmpty(yield* queryIn(other)((sql) => sql`SELECT FROM pets`))
  }))

const outageStates = ["57P", "53", "25006", "58", "55000", "3D000", "26000", "42P05"]
const anyCode = fc.oneof(
  fc.constantFrom(
    "57P01",
    "57P02",
    "57P03",
    "53100",
    "53200",
    "53300",
    "25006",
    "58030",
    "55000",
    "3D000",
    "26000",
    "42P05",
    "22P02",
    "23505",
    "42P01"
  ),
  fc.stringMatching(/^[0-4][0-9A-Z][0-9A-Z]{3}$/)
)
const anyChain = fc.array(fc.option(anyCode, { nil: undefined }), { minLength: 1, maxLength: 4 })

it.effect("Any failure is a 503 with one line, the defect that it was, or unchanged, by the codes of its causes", () =>
  Effect.gen(function*() {
    for (const [codes, isOfDatabase] of fc.sample(fc.tuple(anyChain, fc.boolean()), { numRuns: 500, seed: 1 })) {
      const cause = codes.reduceRight<Error | undefined>(
        (inner, code) => Object.assign(new Error("failed", { cause: inner }), code !== undefined && { code }),
        undefined
      )
      const failure = isOfDatabase
        ? new SqlError.SqlError({ reason: new SqlError.UnknownError({ cause }) })
        : new Error("not of the database", { cause })
      let lines = 0
      const exit = yield* Effect.exit(Outage.failWith(databaseErrors)(Effect.fail(failure))).pipe(
        Effect.provide(Logger.layer([Logger.make(() => void lines++)]))
      )
      const reason = Exit.isFailure(exit) ? exit.cause.reasons[0] : undefined
      const isExpected = codes.some((code) => outageStates.some((state) => code?.startsWith(state)))
      const text = JSON.stringify([codes, isOfDatabase])
      assert.strictEqual(lines, isOfDatabase && isExpected ? 1 : 0, text)
      if (!isOfDatabase) {
        assert.isTrue(reason !== undefined && Cause.isFailReason(reason) && reason.error === failure, text)
      } else if (!isExpected) {
        assert.isTrue(reason !== undefined && Cause.isDieReason(reason) && reason.defect === failure, text)
      } else {
        const error = reason !== undefined && Cause.isFailReason(reason) ? reason.error : undefined
        assert.instanceOf(error, ServiceUnavailable, text)
        assert.strictEqual(error.message.includes("read-only"), codes.includes("25006"), text)
      }
    }
  }))
