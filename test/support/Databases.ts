/** The databases that suites run on, and the stores on them and in memory. */
import { NodeCrypto, NodeFileSystem } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { describe, layer, type Vitest } from "@effect/vitest"
import { Clock, ConfigProvider, Effect, Layer, Logger, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { appendFileSync, cpSync } from "node:fs"
import { join } from "node:path"
import { isMainThread, Worker } from "node:worker_threads"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { layerMemory } from "../../src/collection/Collection.ts"
import * as SqlCollection from "../../src/collection/SqlCollection.ts"
import { apiKeyOptions, databaseNames, databaseOptions } from "../../src/config/RoomOptions.ts"
import { Settings } from "../../src/config/Settings.ts"
import { AdminShare } from "../../src/database/AdminShare.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import * as Database from "../../src/database/Database.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { Readiness } from "../../src/database/Readiness.ts"
import { makeCountFailure } from "../../src/observability/MetricConstructors.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { makeStores } from "../../src/resources.ts"
import { recordErrors } from "./LoggedErrors.ts"
import { inMemory, makeTemplate, temporaryDirectoryIn } from "./Temporary.ts"

const watchEventLoop = `
let [last, since] = [0, 0]
setInterval(([turns]) => {
  const { system, user } = process.cpuUsage()
  if (turns !== last) [last, since] = [turns, system + user]
  if (system + user - since < 60e6) return
  require("node:fs").writeSync(2, "The event loop of a test has stood still for 60 seconds of CPU time.\\n")
  process.kill(process.pid, "SIGKILL")
}, 1_000, require("node:worker_threads").workerData)`

/**
 * Ends this process once its event loop has stood still for 60 seconds of CPU time, which a busy machine does not
 * shorten. Timers of this process cannot, because a loop of statements on the embedded database never lets it turn. So
 * all tests of a file in a row can be one such loop, with 20 seconds of CPU time in all threads.
 */
const turns = new Int32Array(new SharedArrayBuffer(4))
setInterval(() => Atomics.add(turns, 0, 1), 1_000).unref()
// In a worker, it would outlive the event loop that it watches.
if (isMainThread) new Worker(watchEventLoop, { eval: true, workerData: turns }).unref()

/** Counts failures in the background as the service does. */
const failures = Layer.succeed(BackgroundFailures, { makeCounter: makeCountFailure, onLostValues() {} })

/** What stores on SQL need beside a client. */
export const besideClient = Layer.merge(failures, Layer.succeed(AdminShare, AdminShare.unlimited))

export const databaseOfSettings = Layer.unwrap(
  Effect.map(databaseOptions, (options) => Database.layer(options, () => {}))
)

/** The database of a service with this `DATABASE_URL` and other settings. */
export const databaseAt = (DATABASE_URL: string, settings: Readonly<Record<string, string>> = {}) => {
  const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ ...settings, DATABASE_URL }))
  return Layer.merge(databaseOfSettings, failures).pipe(Layer.provide([config, NodeFileSystem.layer]))
}

export const clientOn = (url: string) => PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })

/** The embedded database in a directory. */
export const embeddedIn = (directory: string) => EmbeddedDatabase.layer(directory, "DATA_DIR", () => {})

/** With the default buffers of 128 MB, copies of this database would take twice as long to open. */
const makeDatabase = (directory: string) =>
  Effect.andThen(
    Effect.scoped(
      Layer.build(
        Layer.fresh(Layer.provide(Database.migrate(databaseNames), embeddedIn(directory)))
      )
    ),
    Effect.sync(() => appendFileSync(join(directory, "pgdata", "postgresql.conf"), "shared_buffers = 16MB\n"))
  )

/** Creates a data directory. Its database is a copy of one with the schema, because making the files takes seconds. */
export const dataDirectory = Effect.tap(
  temporaryDirectoryIn(inMemory),
  (directory) =>
    Effect.map(
      makeTemplate("embedded", makeDatabase),
      (template) => cpSync(join(template, "pgdata"), join(directory, "pgdata"), { recursive: true })
    )
)

/**
 * The databases are on the live clock, so that a step of `TestClock` runs no maintenance of the embedded one, and does
 * not close the connections to the other one.
 */
const liveClock = Layer.succeed(Clock.Clock, Clock.Clock.defaultValue())
const pglite = Layer.provide(
  Layer.unwrap(Effect.map(dataDirectory, embeddedIn)),
  liveClock
)

/** Runs statements on the embedded database in a directory. */
export const queryIn = (directory: string) => <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.scoped(Effect.provide(Effect.flatMap(SqlClient.SqlClient, use), embeddedIn(directory)))

/** Creates a database on the server of `TEST_DATABASE_URL`. The scope drops it. */
export const temporaryDatabaseUrl = Effect.gen(function*() {
  const server = process.env.TEST_DATABASE_URL ?? ""
  const name = `petstore_test_${randomUUID().replaceAll("-", "")}`
  const url = new URL(server)
  url.pathname = `/${name}`
  const run = (statement: string) =>
    Effect.orDie(Effect.provide(Effect.flatMap(PgClient.PgClient, (sql) => sql.unsafe(statement)), clientOn(server)))
  yield* Effect.acquireRelease(run(`CREATE DATABASE ${name}`), () => run(`DROP DATABASE ${name} WITH (FORCE)`))
  return url.href
})

/** A database on PostgreSQL. Its commits do not wait for the disk, because these suites stop no server. */
const postgres = Layer.provide(
  Layer.unwrap(Effect.map(temporaryDatabaseUrl, (url) => {
    const startupParameters = { synchronous_commit: "off" }
    return PgClient.layer({ url: Redacted.make(url), multiplex: true, startupParameters })
  })),
  liveClock
)

export const hasServer = process.env.TEST_DATABASE_URL !== undefined

/** The databases that a suite runs on. Each layer creates one, with the schema, and what stores need beside it. */
export const databases = [
  {
    name: "PGlite",
    skip: false,
    layer: Database.migrate(databaseNames).pipe(Layer.provideMerge(Layer.merge(pglite, besideClient)))
  },
  {
    name: "PostgreSQL",
    skip: !hasServer,
    layer: Database.migrate(databaseNames).pipe(Layer.provideMerge(Layer.merge(postgres, besideClient)))
  }
]

export const random = NodeCrypto.layerSecureRandom

const withoutServer = (acquirer: Effect.Effect<never>) => {
  const options = { acquirer, compiler: PgClient.makeCompiler(), spanAttributes: [], driver: "" }
  return Layer.effect(SqlClient.SqlClient, Effect.provide(SqlClient.make(options), Reactivity.layer)).pipe(
    Layer.merge(besideClient)
  )
}
/** In place of the database of stores in memory. */
export const noDatabase = withoutServer(Effect.die("no database"))
/** A database that never responds. */
export const silentDatabase = withoutServer(Effect.never)

/** The stores of all resources, on SQL and in memory. */
export const sqlStores = makeStores(SqlCollection.layer(Settings.petCacheSeconds.config))
export const memoryStores = makeStores(layerMemory)

const silent = Layer.succeed(Readiness, Effect.fail(databaseErrors.unavailable))
export const memory = Layer.mergeAll(memoryStores, ApiKeys.layerMemory, noDatabase, silent).pipe(
  Layer.provideMerge(random)
)

export const memoryWith = (change: (pets: PetRepository["Service"]) => Partial<PetRepository["Service"]>) =>
  Layer.provideMerge(Layer.effect(PetRepository, Effect.map(PetRepository, (p) => ({ ...p, ...change(p) }))), memory)

/** The API keys on a database, with the options of the settings. */
export const sqlApiKeys = Layer.unwrap(Effect.map(apiKeyOptions, SqlApiKeys.layer)).pipe(
  Layer.provide(StateLookups.layer)
)

/** The stores that the service runs on, with their databases. */
export const stores = [
  { name: "memory", skip: false, layer: memory },
  ...databases.map((database) => ({
    ...database,
    layer: Layer.mergeAll(sqlStores, sqlApiKeys, Readiness.layer(databaseErrors)).pipe(
      Layer.provideMerge(Layer.merge(database.layer, random))
    )
  }))
]

/** A layer that tests share. With `isLive`, they have no `TestClock`. */
type Store<R, E> = Readonly<{ name: string; skip: boolean; isLive?: boolean; layer: Layer.Layer<R, E> }>

const errorLog = Logger.layer([recordErrors], { mergeWithExisting: true })

export const describeOnEach = <R, E>(
  stores: ReadonlyArray<Store<R, E>>,
  title: string,
  define: (it: Vitest.MethodsNonLive<R>, name: string) => void
) => {
  for (const store of stores) {
    describe.skipIf(store.skip)(`${title} on ${store.name}`, () => {
      layer(Layer.merge(store.layer, errorLog), { excludeTestServices: store.isLive === true })((it) =>
        define(it, store.name)
      )
    })
  }
}
