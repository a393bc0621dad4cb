/** Tests creates of several processes on one PostgreSQL server: keys that two of them claim, and locked keys. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Redacted, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { temporaryDatabaseUrl } from "../support/Harness.ts"

const client = (url: string) =>
  Layer.fresh(PgClient.layer({ url: Redacted.make(url), multiplex: true, multiplexConcurrency: 1 }))

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

/** Holds the lock of an idempotency key that an operator's open transaction inserted, until `release` ends it. */
const holdKey = Effect.fnUntraced(function*(key: string) {
  const sql = yield* SqlClient.SqlClient
  const held = yield* Deferred.make<void>()
  const released = yield* Deferred.make<void>()
  const transaction = yield* Effect.forkChild(sql.withTransaction(Effect.gen(function*() {
    yield* sql`INSERT INTO idempotency_keys (owner, key, request, pet_id, expires_at)
      VALUES (${owner}, ${key}, '', 1, now() + interval '1 day')`
    yield* Deferred.succeed(held, undefined)
    yield* Deferred.await(released)
    return yield* Effect.fail("rolled back" as const)
  })))
  yield* Deferred.await(held)
  return { rollBack: Effect.andThen(Deferred.succeed(released, undefined), Fiber.await(transaction)) }
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Creates of two processes", () => {
  it.live(
    "with the same keys in opposite orders create each pet once, without a deadlock",
    () =>
      onDatabase(Effect.fnUntraced(function*(url) {
        const sql = yield* SqlClient.SqlClient
        const keys = Array.from({ length: 3_000 }, (_, index) => `key ${index}`)
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

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("An idempotency key that a transaction holds", () => {
  it.live(
    "delays only its own create, which is done once after the transaction's end",
    () =>
      onDatabase(Effect.fnUntraced(function*(url) {
        const pets = yield* repository(url)
        const { rollBack } = yield* holdKey("held")
        const held = yield* Effect.forkChild(Effect.replicateEffect(pets.create(pet, { owner, key: "held" }), 3, {
          concurrency: "unbounded"
        }))
        const startedAt = performance.now()
        const others = yield* Effect.forEach(
          Array.from({ length: 60 }, (_, index) => index),
          (index) => pets.create(pet, index % 2 === 0 ? undefined : { owner, key: `other ${index}` }),
          { concurrency: "unbounded" }
        )
        assert.isBelow(performance.now() - startedAt, 2_000)
        assert.lengthOf(new Set(others.map(({ id }) => id)), 60)
        assert.strictEqual(yield* countPets, 60)
        yield* rollBack
        const created = yield* Fiber.join(held)
        assert.lengthOf(new Set(created.map(({ id }) => id)), 1)
        assert.strictEqual(yield* countPets, 61)
      })),
    30_000
  )

  it.live(
    "fails its create after four seconds, and a retry after the transaction's end leaves one pet",
    () =>
      onDatabase(Effect.fnUntraced(function*(url) {
        const pets = yield* repository(url)
        const { rollBack } = yield* holdKey("held")
        const startedAt = performance.now()
        const exit = yield* Effect.exit(pets.create(pet, { owner, key: "held" }))
        assert.isTrue(Exit.isFailure(exit) && Exit.hasDies(exit))
        assert.closeTo(performance.now() - startedAt, 4_000, 500)
        // The server may execute the failed statement after all, before the client's cancellation arrives.
        yield* rollBack
        const first = yield* pets.create(pet, { owner, key: "held" })
        assert.strictEqual((yield* pets.create(pet, { owner, key: "held" })).id, first.id)
        assert.strictEqual(yield* countPets, 1)
      })),
    30_000
  )
})
