import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { Pet } from "../../src/api/Pets.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import type { Selection } from "../../src/pets/PetStore.ts"
import { databases } from "../support/Harness.ts"

const int64s = [9223372036854775807n, -9223372036854775808n, 9007199254740993n, -1n, 0n]

const stores = [
  { name: "memory", skip: false, layer: Layer.orDie(PetRepository.layerMemory) },
  ...databases.map(({ layer, ...database }) => ({
    ...database,
    layer: PetRepository.layer.pipe(Layer.provide(layer), Layer.orDie)
  }))
]

for (const store of stores) {
  describe.skipIf(store.skip)(`PetRepository on ${store.name}`, () => {
    layer(store.layer)((it) => {
      it.effect("finds what was created, field by field, and keeps an absent status absent", () =>
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

      it.effect("finds nothing under an id that no pet has", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          for (const id of int64s) assert.deepStrictEqual(yield* pets.find(id), Option.none())
        }))

      it.effect("gives every pet an id of its own, also to those created at once", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const same = { name: "same", categoryId: 1n }
          const created = yield* Effect.all(
            Array.from({ length: 200 }, (_, nth) => pets.create(nth % 2 === 0 ? same : { ...same })),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(new Set(created.map(({ id }) => id)).size, created.length)
        }))
    })

    layer(store.layer)((it) => {
      const owner = "key_a"
      const pet = { name: "Rex", categoryId: 1n, status: "sold" } as const

      it.effect("adds once what is asked for many times at once under one name", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const created = yield* Effect.all(
            Array.from({ length: 50 }, () => pets.create(pet, { owner, key: "at once" })),
            { concurrency: "unbounded" }
          )
          for (const { id, ...rest } of created) assert.deepStrictEqual([id, rest], [created[0]?.id, pet])
          assert.lengthOf(yield* pets.list({ limit: 100 }), 1)
        }))

      it.effect("knows a name with its owner and for its animal only, and adds nothing under it for another", () =>
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

      it.effect("forgets a name after 24 hours, and not before", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const name = { owner, key: "a day" }
          const first = yield* pets.create(pet, name)
          yield* TestClock.adjust("86399 seconds")
          assert.strictEqual((yield* pets.create(pet, name)).id, first.id)
          yield* TestClock.adjust("1 second")
          const second = yield* pets.create({ ...pet, name: "Tom" }, name)
          assert.isAbove(Number(second.id), Number(first.id))
          assert.strictEqual((yield* pets.create({ ...pet, name: "Tom" }, name)).id, second.id)
        }))
    })

    layer(store.layer)((it) => {
      it.effect("lists by ascending id, at most the limit, and only the status that is asked for", () =>
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

const statuses = [{ status: "available" }, { status: "pending" }, { status: "sold" }, {}] as const

for (const database of databases) {
  describe.skipIf(database.skip)(`PetRepository on ${database.name}`, () => {
    layer(PetRepository.layer.pipe(Layer.provideMerge(database.layer)))((it) => {
      it.effect("reads ids of all 64 bits, in order", () =>
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

      it.effect("carries a value that takes many network packets", () =>
        Effect.gen(function*() {
          const pets = yield* PetRepository
          const name = "0123456789abcdef".repeat(65_536)
          const { id } = yield* pets.create({ name, categoryId: 1n })
          const found = yield* pets.find(id)
          assert.strictEqual(Option.getOrThrow(found).name, name)
          yield* Effect.flatMap(SqlClient.SqlClient, (sql) => sql`DELETE FROM pets WHERE id = ${id}`)
        }))

      it.effect("adds behind ids that an operator took, and leaves those that come much later", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const { id: last } = yield* pets.create({ name: "last", categoryId: 1n })
          yield* sql`INSERT INTO pets (id, name, category_id)
            SELECT id, 'imported', 1 FROM generate_series(${last + 3n}::bigint, ${last + 500n}::bigint) AS id
            UNION ALL SELECT ${last + 1_000_000n}::bigint, 'far', 1`
          const one = yield* pets.create({ name: "one", categoryId: 1n }, { owner: "key_a", key: "before" })
          const many = yield* Effect.forEach(
            Array.from({ length: 60 }, (_, nth) => nth),
            (nth) =>
              pets.create(
                { name: "many", categoryId: 1n },
                nth % 2 === 0 ? undefined : { owner: "key_a", key: `${nth}` }
              ),
            { concurrency: "unbounded" }
          )
          assert.isBelow(Number(one.id), Number(last) + 3)
          const ids = new Set(many.map(({ id }) => id))
          assert.lengthOf([...ids], 60)
          for (const id of ids) assert.isTrue(id < last + 3n || (id > last + 500n && id < last + 1_000_000n), `${id}`)
          yield* sql`DELETE FROM pets WHERE name IN ('imported', 'far')`
        }))

      it.effect("reads a filtered list off an index", () =>
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

      it.effect("removes the names of additions that are known no more, behind the requests", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          yield* pets.create({ name: "named", categoryId: 1n }, { owner: "key_a", key: "gone" })
          const left = Effect.map(sql`SELECT FROM idempotency_keys WHERE key = 'gone'`, (rows) => rows.length)
          assert.strictEqual(yield* left, 1)
          yield* TestClock.adjust("1 day")
          while ((yield* left) > 0) {
            yield* TestClock.adjust("10 minutes")
            yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 20)))
          }
        }))
    })
  })
}

for (const database of databases) {
  describe.skipIf(database.skip)(`What PetRepository remembers, on ${database.name}`, () => {
    layer(PetRepository.layer.pipe(Layer.provideMerge(database.layer), Layer.orDie))((it) => {
      /** Four polls, each in real time, while somebody asks. */
      const aSecond = Effect.gen(function*() {
        const pets = yield* PetRepository
        for (let i = 0; i < 4; i++) {
          yield* pets.find(1n)
          yield* TestClock.adjust("250 millis")
          yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 50)))
        }
      })
      /** Unseen by the trigger, and so by the service. */
      const unseen = <E>(change: Effect.Effect<unknown, E, SqlClient.SqlClient>) =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`ALTER TABLE pets DISABLE TRIGGER pets_changed`
          yield* change
          yield* sql`ALTER TABLE pets ENABLE TRIGGER pets_changed`
        })

      it.effect("makes the pages that no other animal can come into", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const ids = (selection: Selection) => Effect.map(pets.list(selection), (page) => page.map(({ id }) => id))
          const add = pets.create({ name: "Rex", categoryId: 1n, status: "sold" })
          yield* Effect.replicateEffect(add, 6, { discard: true })
          yield* aSecond
          yield* ids({ limit: 10 })

          const pages = [{ limit: 4 }, { limit: 3, after: 2n }, { limit: 2, after: 1n, status: "sold" }] as const
          const before = yield* Effect.forEach(pages, ids)
          yield* unseen(sql`UPDATE pets SET id = 100 + id, status = 'pending' WHERE id <= 6`)
          assert.deepStrictEqual(yield* Effect.forEach(pages, ids), before)
          assert.deepStrictEqual(before, [[1n, 2n, 3n, 4n], [3n, 4n, 5n], [2n, 3n]])
          // The database is asked for what is not full, has another status, or has a gap.
          assert.deepStrictEqual(yield* ids({ limit: 7 }), [101n, 102n, 103n, 104n, 105n, 106n])
          assert.deepStrictEqual(yield* ids({ limit: 1, status: "pending" }), [101n])
          yield* sql`UPDATE pets SET id = id - 100 WHERE id <> 103`
          yield* aSecond
          assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 4n, 5n])
          yield* sql`INSERT INTO pets (id, name, category_id) VALUES (3, 'late', 1)`
          assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 3n, 4n])
          // Below all that the service adds, an operator's takes its second.
          yield* sql`INSERT INTO pets (id, name, category_id) VALUES (-5, 'first', 1)`
          yield* aSecond
          assert.deepStrictEqual(yield* ids({ limit: 2 }), [-5n, 1n])
          yield* sql`DELETE FROM pets WHERE id IN (2, -5)`
          yield* aSecond
          assert.deepStrictEqual(yield* ids({ limit: 2 }), [1n, 3n])
        }))

      it.effect("is asked of the database once, and no more than a second old when an operator changes animals", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const changed = yield* pets.create({ name: "before", categoryId: 1n })
          const removed = yield* pets.create({ name: "removed", categoryId: 1n })
          const names = Effect.map(
            Effect.all([pets.find(changed.id), pets.find(removed.id)]),
            (found) => found.map(Option.map(({ name }) => name)).map(Option.getOrNull)
          )
          yield* aSecond
          assert.deepStrictEqual(yield* names, ["before", "removed"])

          yield* unseen(sql`UPDATE pets SET name = 'unseen' WHERE id = ${changed.id}`)
          assert.deepStrictEqual(yield* names, ["before", "removed"])

          yield* sql`UPDATE pets SET name = 'after' WHERE id = ${changed.id}`
          yield* aSecond
          assert.deepStrictEqual(yield* names, ["after", "removed"])
          yield* sql`DELETE FROM pets WHERE id = ${removed.id}`
          yield* aSecond
          assert.deepStrictEqual(yield* names, ["after", null])
          // Which fires no trigger.
          yield* sql`ALTER TABLE pets ALTER COLUMN name TYPE text USING name || '!'`
          yield* aSecond
          assert.deepStrictEqual(yield* names, ["after!", null])
          yield* sql`TRUNCATE pets`
          yield* aSecond
          assert.deepStrictEqual(yield* names, [null, null])
        }))

      it.effect("is polled for in the same time, however much was changed before", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          yield* sql`INSERT INTO pets_changes (transaction)
            SELECT n::text::xid8 FROM generate_series(1, 200000) AS n ON CONFLICT DO NOTHING`
          const { id } = yield* pets.create({ name: "before", categoryId: 1n })
          yield* aSecond
          yield* pets.find(id)
          const read = Effect.map(
            sql<{ readonly rows: bigint }>`SELECT seq_tup_read + idx_tup_read AS rows
              FROM pg_stat_user_tables JOIN pg_stat_user_indexes USING (relid)
              WHERE indexrelname = 'pets_changes_pkey'`,
            ([row]) => Number(row?.rows)
          )
          yield* sql`SELECT pg_stat_force_next_flush()`
          const before = yield* read
          for (let i = 0; i < 3; i++) {
            yield* sql`UPDATE pets SET name = ${`after ${i}`} WHERE id = ${id}`
            yield* aSecond
            assert.deepStrictEqual(Option.map(yield* pets.find(id), ({ name }) => name), Option.some(`after ${i}`))
          }
          yield* sql`SELECT pg_stat_force_next_flush()`
          assert.isBelow((yield* read) - before, 1_000)
          yield* sql`DELETE FROM pets_changes`
          yield* sql`DELETE FROM pets`
        }))

      it.effect("is walked without loss over gaps and over ids that share a place, and read ahead", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const apart = 2n ** 19n
          yield* sql`INSERT INTO pets (id, name, category_id)
            SELECT id, 'near', 1 FROM generate_series(1001::bigint, 1300) AS id WHERE id % 97 <> 0
            UNION ALL SELECT id + ${apart}::bigint, 'far', 1 FROM generate_series(1001::bigint, 1300) AS id`
          yield* aSecond
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
            yield* Effect.forEach([1001n, 1001n + apart, 1001n, 1001n - apart, 1001n + 2n * apart], nameOf),
            ["near", "far", "near", undefined, undefined]
          )

          // The first two pages of a walk are looked up, the second with those after it.
          const names = (after: bigint) =>
            Effect.map(pets.list({ limit: 21, after }), (page) => page.map(({ name }) => name))
          const start = 1100n + apart
          yield* sql`UPDATE pets SET name = 'before' WHERE id > ${start}`
          yield* aSecond
          yield* names(start)
          yield* names(start + 20n)
          yield* unseen(sql`UPDATE pets SET name = 'unseen' WHERE id > ${start}`)
          for (const after of [40n, 60n, 80n]) {
            assert.deepStrictEqual(new Set(yield* names(start + after)), new Set(["before"]))
          }
          assert.deepStrictEqual(new Set(yield* names(start + 120n)), new Set(["unseen"]))
        }))

      it.effect("is no animal whose name is long, so that what is remembered has a bound", () =>
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
          yield* aSecond
          yield* categories
          yield* unseen(sql`UPDATE pets SET category_id = 2`)
          assert.deepStrictEqual(yield* categories, [1n, 1n, 2n])
        }))

      it.effect("is no animal with another id, however large, or below zero", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const pets = yield* PetRepository
          const edge = 2n ** 53n
          const all = [
            -(2n ** 19n),
            -1n,
            0n,
            ...Array.from({ length: 8 }, (_, nth) => edge - 4n + BigInt(nth)),
            2n ** 63n - 1n
          ]
          yield* sql`TRUNCATE pets`
          for (const id of all) yield* sql`INSERT INTO pets (id, name, category_id) VALUES (${id}, 'one', 1)`
          yield* aSecond
          for (let nth = 0; nth < 2; nth++) {
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
