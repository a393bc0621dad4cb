/** Tests creates of two processes on one PostgreSQL server, which claim the same idempotency keys. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { temporaryDatabaseUrl } from "../support/Harness.ts"

const client = (url: string) => Layer.fresh(PgClient.layer({ url: Redacted.make(url), maxConnections: 4 }))

/** The repository of one process. */
const repository = (url: string) =>
  Effect.map(
    Layer.build(Layer.fresh(SqlPetRepository.layer).pipe(Layer.provide(client(url)))),
    (context) => Context.get(context, PetRepository)
  )

const owner = "key_a"
const pet = { name: "Rex", categoryId: 1n }

const countPets = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => Effect.map(sql`SELECT FROM pets`, (rows) => rows.length)
)

/** Runs a test on a new database, whose client is the operator's. */
const onDatabase = <A, E>(test: (url: string) => Effect.Effect<A, E, SqlClient.SqlClient | Scope.Scope>) =>
  Effect.flatMap(
    temporaryDatabaseUrl,
    (url) => Effect.provide(test(url), Database.migrate.pipe(Layer.provideMerge(client(url))))
  )

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Creates of two processes", () => {
  it.live(
    "with the same keys in opposite orders create each pet once, without a deadlock",
    () =>
      onDatabase(Effect.fnUntraced(function*(url) {
        const sql = yield* SqlClient.SqlClient
        const keys = Array.from({ length: 600 }, (_, index) => `key ${index}`)
        const createAll = (order: ReadonlyArray<string>) =>
          Effect.scoped(Effect.gen(function*() {
            const pets = yield* repository(url)
            const created = yield* Effect.forEach(
              order,
              (key) => Effect.map(pets.create(pet, { owner, key }), ({ id }) => [key, id] as const),
              { concurrency: 100 }
            )
            return new Map(created)
          }))
        // Blocks of 100 keys in the same order, so that both processes claim the same keys at once.
        const reversed = keys.map((_, index) => keys[index - index % 100 + 99 - index % 100] ?? "")
        const [one, other] = yield* Effect.all([createAll(keys), createAll(reversed)], { concurrency: 2 })
        for (const key of keys) assert.strictEqual(one.get(key), other.get(key))
        assert.lengthOf(new Set(one.values()), keys.length)
        assert.strictEqual(yield* countPets, keys.length)
        // A deadlock, and a wait for a lock that timed out, would each have rolled a statement back.
        const [stats] = yield* sql<{ readonly rollbacks: number }>`
        SELECT xact_rollback::int AS rollbacks FROM pg_stat_database WHERE datname = current_database()`
        assert.strictEqual(stats?.rollbacks, 0)
      })),
    60_000
  )
})
