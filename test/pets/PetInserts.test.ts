/** Tests creates of two processes on one PostgreSQL server, which claim the same idempotency keys. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { temporaryDatabaseUrl } from "../support/Harness.ts"

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Creates of two processes", () => {
  it.live("with the same keys in opposite orders create each pet once, without a deadlock", () =>
    Effect.gen(function*() {
      const client = Layer.fresh(PgClient.layer({ url: Redacted.make(yield* temporaryDatabaseUrl), maxConnections: 4 }))
      const keys = Array.from({ length: 600 }, (_, index) => `key ${index}`)
      /** Creates the pets with `order` as keys in one process. Returns the ids by key. */
      const createAll = Effect.fnUntraced(function*(order: ReadonlyArray<string>) {
        const context = yield* Layer.build(Layer.fresh(SqlPetRepository.layer).pipe(Layer.provide(client)))
        const { create } = Context.get(context, PetRepository)
        const created = yield* Effect.forEach(
          order,
          (key) =>
            Effect.map(
              create({ name: "Rex", categoryId: 1n }, { owner: "key_a", key }),
              ({ id }) => [key, id] as const
            ),
          { concurrency: 100 }
        )
        return new Map(created)
      }, Effect.scoped)
      yield* Effect.gen(function*() {
        // Blocks of 100 keys in the same order, so that both processes claim the same keys at once.
        const reversed = keys.map((_, index) => keys[index - index % 100 + 99 - index % 100] ?? "")
        const [one, other] = yield* Effect.all([createAll(keys), createAll(reversed)], { concurrency: 2 })
        for (const key of keys) assert.strictEqual(one.get(key), other.get(key))
        const sql = yield* SqlClient.SqlClient
        const pets = yield* sql<{ readonly id: bigint }>`SELECT id FROM pets`
        assert.sameMembers(pets.map(({ id }) => id), [...one.values()])
        // A deadlock, and a wait for a lock that timed out, would each have rolled a statement back.
        const [stats] = yield* sql<{ readonly rollbacks: number }>`
          SELECT xact_rollback::int AS rollbacks FROM pg_stat_database WHERE datname = current_database()`
        assert.strictEqual(stats?.rollbacks, 0)
      }).pipe(Effect.provide(Database.migrate.pipe(Layer.provideMerge(client))))
    }))
})
