/** Tests creates of two processes on one PostgreSQL server, which claim the same idempotency keys. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Database from "../../src/database/Database.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { clientOn, temporaryDatabaseUrl } from "../support/Databases.ts"

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Creates of two processes", () => {
  it.effect("with the same keys in opposite orders create each pet once, without a deadlock", () =>
    Effect.gen(function*() {
      const client = Layer.fresh(clientOn(yield* temporaryDatabaseUrl))
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const repository = Layer.build(Layer.provide(Layer.fresh(SqlPetRepository.layer), client))
        const processes = [yield* repository, yield* repository].map((context) => Context.get(context, PetRepository))
        for (let round = 0; round < 10; round++) {
          const keys = Array.from({ length: 250 }, (_, index) => `key ${round} ${index}`)
          const [one = [], other = []] = yield* Effect.forEach(processes, ({ create }, index) =>
            Effect.forEach(
              index === 0 ? keys : keys.toReversed(),
              (key) => create({ name: "Rex", categoryId: 1n }, { owner: "key_a", key }),
              { concurrency: "unbounded" }
            ), { concurrency: 2 })
          assert.deepStrictEqual(one.map(({ pet }) => pet.id), other.map(({ pet }) => pet.id).toReversed())
        }
        assert.lengthOf(yield* sql`SELECT FROM pets`, 2_500)
        // A deadlock, and a wait for a lock that timed out, would each have rolled a statement back.
        const [stats] = yield* sql`
          SELECT xact_rollback::int AS rollbacks FROM pg_stat_database WHERE datname = current_database()`
        assert.deepStrictEqual(stats, { rollbacks: 0 })
      }).pipe(Effect.provide(Database.migrate.pipe(Layer.provideMerge(client))))
    }))
})
