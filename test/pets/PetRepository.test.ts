/** Tests the pet repository and its cache, in memory and on each database. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { type Pet, replayed } from "../../src/api/Pets.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import type { Selection } from "../../src/pets/PetStore.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { databases } from "../support/Harness.ts"

/** Ids and category ids: the limits of 64 bits, a number that a double cannot hold, and the numbers around zero. */
const int64s = [9223372036854775807n, -9223372036854775808n, 9007199254740993n, -1n, 0n]

const stores = [
  { name: "memory", skip: false, layer: Layer.orDie(PetRepository.layerMemory) },
  ...databases.map(({ layer, ...database }) => ({
    ...database,
    layer: SqlPetRepository.layer.pipe(Layer.provide(layer), Layer.orDie)
  }))
]

for (const store of stores) {
  describe.skipIf(store.skip)(`PetRepository on ${store.name}`, () => {
    layer(store.layer)((it) => {
      it.effect("finds each created pet with the same fields, without a status if it was created without one", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          for (const categoryId of int64s) {
            for (const status of ["available", "pending", "sold"] as const) {
              const pet = yield* pets.create({ name: "Łucja 🐈 'x'; --", categoryId, status })
              assert.deepStrictEqual(pet, { id: pet.id, name: "Łucja 🐈 'x'; --", categoryId, status })
              assert.deepStrictEqual(yield* pets.find(pet.id), Option.some(pet))
            }
          }
          const pet = yield* pets.create({ name: "", categoryId: 1n })
          assert.deepStrictEqual(yield* pets.find(pet.id), Option.some({ id: pet.id, name: "", categoryId: 1n }))
        }))

      it.effect("returns None for an id that no pet has", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          for (const id of int64s) assert.deepStrictEqual(yield* pets.find(id), Option.none())
        }))

      it.effect("gives each pet a unique id, also in concurrent creates", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const same = { name: "same", categoryId: 1n }
          const created = yield* Effect.all(
            Array.from({ length: 200 }, (_, index) => pets.create(index % 2 === 0 ? same : { ...same })),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(new Set(created.map(({ id }) => id)).size, created.length)
        }))
    })

    layer(store.layer)((it) => {
      const owner = "key_a"
      const pet = { name: "Rex", categoryId: 1n, status: "sold" } as const

      it.effect("creates one pet for concurrent creates with the same idempotency key", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const created = yield* Effect.all(
            Array.from({ length: 50 }, () => pets.create(pet, { owner, key: "at once" })),
            { concurrency: "unbounded" }
          )
          for (const { [replayed]: _, id, ...rest } of created) {
            assert.deepStrictEqual([id, rest], [created[0]?.id, pet])
          }
          assert.lengthOf(created.filter((each) => each[replayed] === true), 49)
          assert.lengthOf(yield* pets.list({ limit: 100 }), 1)
        }))

      it.effect("scopes an idempotency key to its API key, and rejects it for another pet", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const first = yield* pets.create(pet, { owner, key: "named" })
          const others = [{ ...pet, name: "Tom" }, { ...pet, categoryId: 2n }, { name: "Rex", categoryId: 1n }]
          for (const other of others) {
            assert.strictEqual(
              (yield* Effect.flip(pets.create(other, { owner, key: "named" }))).code,
              "idempotency_key_reused"
            )
          }
          assert.strictEqual((yield* pets.create(pet, { owner, key: "named" })).id, first.id)
          assert.isAbove(Number((yield* pets.create(pet, { owner: "key_b", key: "named" })).id), Number(first.id))
          const last = yield* pets.list({ limit: 100, after: first.id })
          assert.deepStrictEqual(last.map(({ name }) => name), ["Rex"])
        }))

      it.effect("expires an idempotency key after exactly 24 hours", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const idempotency = { owner, key: "a day" }
          const first = yield* pets.create(pet, idempotency)
          yield* TestClock.adjust("86399 seconds")
          assert.strictEqual((yield* pets.create(pet, idempotency)).id, first.id)
          yield* TestClock.adjust("1 second")
          const second = yield* pets.create({ ...pet, name: "Tom" }, idempotency)
          assert.isAbove(Number(second.id), Number(first.id))
          assert.strictEqual((yield* pets.create({ ...pet, name: "Tom" }, idempotency)).id, second.id)
        }))

      it.effect("creates 10 pets for 100 concurrent creates with 10 idempotency keys", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const before = (yield* pets.list({ limit: 100 })).length
          const created = yield* Effect.forEach(
            Array.from({ length: 100 }, (_, index) => ({ pet: { ...pet, categoryId: BigInt(index % 10) }, index })),
            ({ index, pet }) => pets.create(pet, { owner, key: `ten ${index % 10}` }),
            { concurrency: "unbounded" }
          )
          for (const [index, { [replayed]: isReplay, id, ...rest }] of created.entries()) {
            assert.deepStrictEqual([id, rest], [created[index % 10]?.id, { ...pet, categoryId: BigInt(index % 10) }])
            assert.strictEqual(isReplay, index < 10 ? undefined : true)
          }
          assert.lengthOf(new Set(created.map(({ id }) => id)), 10)
          assert.lengthOf(yield* pets.list({ limit: 100 }), before + 10)
        }))

      it.effect("creates one of several pets that concurrent creates send with one key, and rejects the others", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const send = (name: string, key = "several") =>
            pets.create({ ...pet, name }, { owner, key }).pipe(
              Effect.map(({ id, name }) => ({ id, name })),
              Effect.catchTag("IdempotencyKeyReused", () => Effect.succeed("reused" as const))
            )
          const names = Array.from({ length: 60 }, (_, index) => `${index % 20}`)
          const sendAll = Effect.forEach(names, (name) => send(name), { concurrency: "unbounded" })
          const outcomes = yield* sendAll
          const [winner, ...others] = outcomes.filter((outcome) => outcome !== "reused")
          assert.deepStrictEqual(others, [winner, winner])
          outcomes.forEach((outcome, index) =>
            assert.deepStrictEqual(outcome, names[index] === winner?.name ? winner : "reused")
          )
          // A batch whose first create does not have the pet of the committed key has the same outcomes.
          assert.deepStrictEqual(yield* sendAll, outcomes)
          const last = names.findIndex((name) => name !== winner?.name)
          const mixed = yield* Effect.all(
            [send(names[last] ?? ""), send(winner?.name ?? ""), send("new", "another"), send("new", "another")],
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(mixed.slice(0, 2), ["reused", winner])
          assert.deepStrictEqual(mixed[2], mixed[3])
          assert.strictEqual(mixed[2] !== "reused" && mixed[2]?.name, "new")
          const stored = yield* pets.list({ limit: 100 })
          assert.lengthOf(stored.filter(({ name }) => name === winner?.name || name === "new"), 2)
        }))

      it.effect("claims an expired idempotency key anew among other concurrent creates", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const old = yield* pets.create(pet, { owner, key: "expired" })
          const live = yield* Effect.andThen(
            TestClock.adjust("1 hour"),
            pets.create({ ...pet, name: "live" }, { owner, key: "live" })
          )
          yield* TestClock.adjust("23 hours")
          const tom = { ...pet, name: "Tom" }
          const [renewed, repeated, again, created, same] = yield* Effect.all([
            pets.create(tom, { owner, key: "expired" }),
            pets.create({ ...pet, name: "live" }, { owner, key: "live" }),
            pets.create(tom, { owner, key: "expired" }),
            pets.create(pet, { owner, key: "fresh" }),
            Effect.flip(pets.create(pet, { owner, key: "expired" }))
          ], { concurrency: "unbounded" })
          assert.strictEqual(repeated.id, live.id)
          assert.strictEqual(again.id, renewed.id)
          assert.deepStrictEqual([renewed, repeated, again, created].map((each) => each[replayed]), [
            undefined,
            true,
            true,
            undefined
          ])
          assert.strictEqual(same.code, "idempotency_key_reused")
          assert.isTrue(old.id < live.id && live.id < renewed.id && renewed.id < created.id)
          assert.deepStrictEqual(yield* pets.find(renewed.id), Option.some(renewed))
          // The renewed key is valid for another 24 hours.
          yield* TestClock.adjust("86399 seconds")
          assert.strictEqual((yield* pets.create(tom, { owner, key: "expired" })).id, renewed.id)
        }))

      it.effect("assigns ids in the order of concurrent creates, with and without idempotency keys", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const created = yield* Effect.forEach(
            Array.from({ length: 100 }, (_, index) => index),
            (index) => pets.create(pet, index % 3 === 0 ? undefined : { owner, key: `in order ${index}` }),
            { concurrency: "unbounded" }
          )
          const ids = created.map(({ id }) => id)
          assert.deepStrictEqual(ids, ids.toSorted((a, b) => Number(a - b)))
        }))
    })

    layer(store.layer)((it) => {
      it.effect("lists pets by ascending id, at most the limit, and only those with the requested status", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          assert.deepStrictEqual(yield* pets.list({ limit: 100 }), [])
          const created = []
          for (let i = 0; i < 30; i++) {
            created.push(yield* pets.create({ name: `pet ${i}`, categoryId: 1n, ...statuses[i % 4] }))
          }
          assert.deepStrictEqual(yield* pets.list({ limit: 100 }), created)
          assert.deepStrictEqual(yield* pets.list({ limit: 7 }), created.slice(0, 7))
          for (const status of ["available", "pending", "sold"] as const) {
            const expected = created.filter((pet) => pet.status === status)
            assert.deepStrictEqual(yield* pets.list({ limit: 100, status }), expected)
            assert.deepStrictEqual(yield* pets.list({ limit: 3, status }), expected.slice(0, 3))
            const after = expected[2]?.id
            assert.deepStrictEqual(yield* pets.list({ limit: 3, status, after }), expected.slice(3, 6))
          }
        }))
    })
  })
}

/** Each status as a field, and no status. */
const statuses = [{ status: "available" }, { status: "pending" }, { status: "sold" }, {}] as const

for (const database of databases) {
  describe.skipIf(database.skip)(`PetRepository on ${database.name}`, () => {
    layer(SqlPetRepository.layer.pipe(Layer.provideMerge(database.layer)))((it) => {
      it.effect("reads ids of the full 64-bit range, in order", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          for (const id of int64s) yield* sql`INSERT INTO pets (id, name, category_id) VALUES (${id}, 'big', ${id})`
          for (const id of int64s) {
            assert.deepStrictEqual(yield* pets.find(id), Option.some({ id, name: "big", categoryId: id }))
          }
          const listed = yield* pets.list({ limit: 100 })
          assert.deepStrictEqual(
            listed.map(({ id }) => id),
            int64s.toSorted((a, b) => Number(a - b))
          )
        }))

      it.effect("stores and returns a name that needs many network packets", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const name = "0123456789abcdef".repeat(65_536)
          const { id } = yield* pets.create({ name, categoryId: 1n })
          const found = yield* pets.find(id)
          assert.strictEqual(Option.getOrThrow(found).name, name)
          yield* Effect.flatMap(SqlClient.SqlClient, (sql) => sql`DELETE FROM pets WHERE id = ${id}`)
        }))

      it.effect("skips ids that an operator's INSERT has taken, and does not jump past distant ones", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const { id: last } = yield* pets.create({ name: "last", categoryId: 1n })
          yield* sql`INSERT INTO pets (id, name, category_id)
            SELECT id, 'imported', 1 FROM generate_series(${last + 3n}::bigint, ${last + 500n}::bigint) AS id
            UNION ALL SELECT ${last + 1_000_000n}::bigint, 'far', 1`
          const one = yield* pets.create({ name: "one", categoryId: 1n }, { owner: "key_a", key: "before" })
          const many = yield* Effect.forEach(
            Array.from({ length: 60 }, (_, index) => index),
            (index) =>
              pets.create(
                { name: "many", categoryId: 1n },
                index % 2 === 0 ? undefined : { owner: "key_a", key: `${index}` }
              ),
            { concurrency: "unbounded" }
          )
          assert.isBelow(Number(one.id), Number(last) + 3)
          const ids = new Set(many.map(({ id }) => id))
          assert.lengthOf([...ids], 60)
          for (const id of ids) assert.isTrue(id < last + 3n || (id > last + 500n && id < last + 1_000_000n), `${id}`)
          yield* sql`DELETE FROM pets WHERE name IN ('imported', 'far')`
        }))

      it.effect("skips taken ids for a batch of creates with and without keys, replays and rejections", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const rex = { name: "batch", categoryId: 1n }
          const first = yield* pets.create(rex, { owner: "key_a", key: "first" })
          yield* sql`INSERT INTO pets (id, name, category_id)
            SELECT id, 'imported', 1 FROM generate_series(${first.id + 2n}::bigint, ${first.id + 50n}::bigint) AS id`
          const [replayed, one, two, reused, three] = yield* Effect.all([
            pets.create(rex, { owner: "key_a", key: "first" }),
            pets.create(rex, { owner: "key_a", key: "one" }),
            pets.create(rex),
            Effect.flip(pets.create({ ...rex, categoryId: 2n }, { owner: "key_a", key: "first" })),
            pets.create(rex, { owner: "key_b", key: "one" })
          ], { concurrency: "unbounded" })
          assert.strictEqual(replayed.id, first.id)
          assert.strictEqual(reused.code, "idempotency_key_reused")
          assert.isTrue(first.id + 50n < one.id && one.id < two.id && two.id < three.id)
          assert.lengthOf(yield* sql`SELECT FROM pets WHERE name = 'batch'`, 4)
          yield* sql`DELETE FROM pets WHERE name IN ('imported', 'batch')`
        }))

      it.effect("makes pets visible in ascending order of ids, with and without idempotency keys", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const visible = Effect.map(
            sql<{ readonly id: bigint }>`SELECT id FROM pets WHERE name = 'ordered' ORDER BY id`,
            (rows) => rows.map(({ id }) => id)
          )
          const snapshots: Array<ReadonlyArray<bigint>> = []
          const watch = Effect.forever(Effect.map(visible, (ids) => snapshots.push(ids)))
          const creates = Effect.forEach(
            Array.from({ length: 400 }, (_, index) => index),
            (index) =>
              pets.create(
                { name: "ordered", categoryId: 1n },
                index % 2 === 0 ? undefined : { owner: "key_a", key: `ordered ${index}` }
              ),
            { concurrency: 40, discard: true }
          )
          yield* Effect.raceFirst(creates, watch)
          const all = yield* visible
          assert.lengthOf(all, 400)
          assert.isAbove(snapshots.length, 1)
          for (const ids of snapshots) assert.deepStrictEqual(ids, all.slice(0, ids.length))
        }))

      it.effect("reads a list with a status from an index, without a sort", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`INSERT INTO pets (name, category_id, status)
            SELECT 'many', 1, CASE WHEN n % 1000 = 0 THEN 'sold' ELSE 'available' END FROM generate_series(1, 20000) AS n`
          yield* sql`ANALYZE pets`
          const plan = yield* sql`EXPLAIN SELECT id FROM pets WHERE status = 'sold' ORDER BY id LIMIT 20`
          assert.include(JSON.stringify(plan), "pets_status_id")
          assert.notInclude(JSON.stringify(plan), "Sort")
          const deep = yield* sql`EXPLAIN SELECT id FROM pets WHERE status = 'sold' AND id > 9000 ORDER BY id LIMIT 20`
          assert.match(JSON.stringify(deep), /pets_status_id.*Index Cond/)
          assert.notInclude(JSON.stringify(deep), "Sort")
        }))

      it.effect("deletes expired idempotency keys in the background", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          yield* pets.create({ name: "named", categoryId: 1n }, { owner: "key_a", key: "gone" })
          const remaining = Effect.map(sql`SELECT FROM idempotency_keys WHERE key = 'gone'`, (rows) => rows.length)
          assert.strictEqual(yield* remaining, 1)
          yield* TestClock.adjust("1 day")
          while ((yield* remaining) > 0) {
            yield* TestClock.adjust("10 minutes")
            yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 20)))
          }
        }))
    })
  })
}

for (const database of databases) {
  describe.skipIf(database.skip)(`The pet cache on ${database.name}`, () => {
    layer(SqlPetRepository.layer.pipe(Layer.provideMerge(database.layer), Layer.orDie))((it) => {
      /** Waits for four polls of the change poller, one second of its time. The lookups keep the poller active. */
      const fourPolls = Effect.gen(function*() {
        const pets = yield* PetRepository
        for (let i = 0; i < 4; i++) {
          yield* pets.find(1n)
          yield* TestClock.adjust("250 millis")
          yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 50)))
        }
      })
      /** Runs `change` without the trigger, so that the cache is not invalidated and shows stale pets. */
      const withoutTrigger = <E>(change: Effect.Effect<unknown, E, SqlClient.SqlClient>) =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`ALTER TABLE pets DISABLE TRIGGER pets_changed`
          yield* change
          yield* sql`ALTER TABLE pets ENABLE TRIGGER pets_changed`
        })

      it.effect("serves only pages without gaps, which no other pet can enter", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const ids = (selection: Selection) => Effect.map(pets.list(selection), (page) => page.map(({ id }) => id))
          const createRex = pets.create({ name: "Rex", categoryId: 1n, status: "sold" })
          yield* Effect.replicateEffect(createRex, 6, { discard: true })
          yield* fourPolls
          yield* ids({ limit: 10 })

          const pages = [{ limit: 4 }, { limit: 3, after: 2n }, { limit: 2, after: 1n, status: "sold" }] as const
          const before = yield* Effect.forEach(pages, ids)
          yield* withoutTrigger(sql`UPDATE pets SET id = 100 + id, status = 'pending' WHERE id <= 6`)
          assert.deepStrictEqual(yield* Effect.forEach(pages, ids), before)
          assert.deepStrictEqual(before, [[1n, 2n, 3n, 4n], [3n, 4n, 5n], [2n, 3n]])
          // A page that is not full, has another status or has a gap comes from the database.
          assert.deepStrictEqual(yield* ids({ limit: 7 }), [101n, 102n, 103n, 104n, 105n, 106n])
          assert.deepStrictEqual(yield* ids({ limit: 1, status: "pending" }), [101n])
          yield* sql`UPDATE pets SET id = id - 100 WHERE id <> 103`
          yield* fourPolls
          assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 4n, 5n])
          yield* sql`INSERT INTO pets (id, name, category_id) VALUES (3, 'late', 1)`
          assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 3n, 4n])
          // An operator's INSERT below the ids of the service takes effect within a second.
          yield* sql`INSERT INTO pets (id, name, category_id) VALUES (-5, 'first', 1)`
          yield* fourPolls
          assert.deepStrictEqual(yield* ids({ limit: 2 }), [-5n, 1n])
          yield* sql`DELETE FROM pets WHERE id IN (2, -5)`
          yield* fourPolls
          assert.deepStrictEqual(yield* ids({ limit: 2 }), [1n, 3n])
        }))

      it.effect("reads a pet from the database once, and shows an operator's change within a second", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const changed = yield* pets.create({ name: "before", categoryId: 1n })
          const removed = yield* pets.create({ name: "removed", categoryId: 1n })
          const names = Effect.map(
            Effect.all([pets.find(changed.id), pets.find(removed.id)]),
            (found) => found.map(Option.map(({ name }) => name)).map(Option.getOrNull)
          )
          yield* fourPolls
          assert.deepStrictEqual(yield* names, ["before", "removed"])

          yield* withoutTrigger(sql`UPDATE pets SET name = 'unseen' WHERE id = ${changed.id}`)
          assert.deepStrictEqual(yield* names, ["before", "removed"])

          yield* sql`UPDATE pets SET name = 'after' WHERE id = ${changed.id}`
          yield* fourPolls
          assert.deepStrictEqual(yield* names, ["after", "removed"])
          yield* sql`DELETE FROM pets WHERE id = ${removed.id}`
          yield* fourPolls
          assert.deepStrictEqual(yield* names, ["after", null])
          // ALTER TABLE fires no trigger.
          yield* sql`ALTER TABLE pets ALTER COLUMN name TYPE text USING name || '!'`
          yield* fourPolls
          assert.deepStrictEqual(yield* names, ["after!", null])
          yield* sql`TRUNCATE pets`
          yield* fourPolls
          assert.deepStrictEqual(yield* names, [null, null])
        }))

      it.effect("reads few rows per poll, however many changes were recorded before", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          yield* sql`INSERT INTO pets_changes (transaction)
            SELECT n::text::xid8 FROM generate_series(1, 200000) AS n ON CONFLICT DO NOTHING`
          const { id } = yield* pets.create({ name: "before", categoryId: 1n })
          yield* fourPolls
          yield* pets.find(id)
          const rowsRead = Effect.map(
            sql<{ readonly rows: bigint }>`SELECT seq_tup_read + idx_tup_read AS rows
              FROM pg_stat_user_tables JOIN pg_stat_user_indexes USING (relid)
              WHERE indexrelname = 'pets_changes_pkey'`,
            ([row]) => Number(row?.rows)
          )
          yield* sql`SELECT pg_stat_force_next_flush()`
          const rowsBefore = yield* rowsRead
          for (let i = 0; i < 3; i++) {
            yield* sql`UPDATE pets SET name = ${`after ${i}`} WHERE id = ${id}`
            yield* fourPolls
            assert.deepStrictEqual(Option.map(yield* pets.find(id), ({ name }) => name), Option.some(`after ${i}`))
          }
          yield* sql`SELECT pg_stat_force_next_flush()`
          assert.isBelow((yield* rowsRead) - rowsBefore, 1_000)
          yield* sql`DELETE FROM pets_changes`
          yield* sql`DELETE FROM pets`
        }))

      it.effect("serves a walk completely across gaps and ids that share a slot, and reads the next pages ahead", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const slotCount = 2n ** 19n
          yield* sql`INSERT INTO pets (id, name, category_id)
            SELECT id, 'near', 1 FROM generate_series(1001::bigint, 1300) AS id WHERE id % 97 <> 0
            UNION ALL SELECT id + ${slotCount}::bigint, 'far', 1 FROM generate_series(1001::bigint, 1300) AS id`
          yield* fourPolls
          const all = (yield* sql<{ readonly id: bigint }>`SELECT id FROM pets ORDER BY id`).map(({ id }) => id)
          for (const limit of [2, 21, 100, 101, 21, 2]) {
            const walked: Array<bigint> = []
            for (let after: bigint | undefined = 1000n; after !== undefined;) {
              const page: ReadonlyArray<Pet> = yield* pets.list({ limit, after })
              walked.push(...page.map(({ id }) => id))
              after = page.length < limit ? undefined : page.at(-1)?.id
            }
            assert.deepStrictEqual(walked, all)
          }
          const nameOf = (id: bigint) => Effect.map(pets.find(id), (found) => Option.getOrNull(found)?.name)
          assert.deepStrictEqual(
            yield* Effect.forEach([1001n, 1001n + slotCount, 1001n, 1001n - slotCount, 1001n + 2n * slotCount], nameOf),
            ["near", "far", "near", undefined, undefined]
          )

          // A walk reads its first two pages from the database. The read of the second page includes the next pages.
          const names = (after: bigint) =>
            Effect.map(pets.list({ limit: 21, after }), (page) => page.map(({ name }) => name))
          const start = 1100n + slotCount
          yield* sql`UPDATE pets SET name = 'before' WHERE id > ${start}`
          yield* fourPolls
          yield* names(start)
          yield* names(start + 20n)
          yield* withoutTrigger(sql`UPDATE pets SET name = 'unseen' WHERE id > ${start}`)
          for (const after of [40n, 60n, 80n]) {
            assert.deepStrictEqual(new Set(yield* names(start + after)), new Set(["before"]))
          }
          assert.deepStrictEqual(new Set(yield* names(start + 120n)), new Set(["unseen"]))
        }))

      it.effect("does not cache a pet whose name has more than 100 characters, which bounds its memory", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const names = [99, 100, 101].map((length) => "x".repeat(length))
          const ids = yield* Effect.forEach(
            names,
            (name) => Effect.map(pets.create({ name, categoryId: 1n }), ({ id }) => id)
          )
          const categories = Effect.map(
            Effect.forEach(ids, pets.find),
            (found) => found.map((pet) => Option.getOrNull(pet)?.categoryId)
          )
          yield* fourPolls
          yield* categories
          yield* withoutTrigger(sql`UPDATE pets SET category_id = 2`)
          assert.deepStrictEqual(yield* categories, [1n, 1n, 2n])
        }))

      it.effect("returns the right pet for negative ids and for ids around 2^53 and up to 2^63 - 1", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const safeLimit = 2n ** 53n
          const all = [
            -(2n ** 19n),
            -1n,
            0n,
            ...Array.from({ length: 8 }, (_, index) => safeLimit - 4n + BigInt(index)),
            2n ** 63n - 1n
          ]
          yield* sql`TRUNCATE pets`
          for (const id of all) yield* sql`INSERT INTO pets (id, name, category_id) VALUES (${id}, 'one', 1)`
          yield* fourPolls
          for (let round = 0; round < 2; round++) {
            const found = yield* Effect.forEach(all, pets.find)
            assert.deepStrictEqual(found.map((pet) => Option.getOrNull(pet)?.id), all)
            for (const [before, after] of all.entries()) {
              const page = yield* pets.list({ limit: 3, after })
              assert.deepStrictEqual(page.map(({ id }) => id), all.slice(before + 1, before + 4))
            }
          }
        }))
    })
  })
}
