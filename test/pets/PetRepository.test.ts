import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Arbitrary, ConfigProvider, Context, Deferred, Effect, Fiber, Layer, Option, Redacted, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { NewPet } from "../../src/api/Pets.ts"
import * as CollectionCache from "../../src/collection/CollectionCache.ts"
import * as SqlCollection from "../../src/collection/SqlCollection.ts"
import { makeCodec } from "../../src/collection/Table.ts"
import { Settings } from "../../src/config/Settings.ts"
import { PetRepository, pets as petsTable } from "../../src/pets/PetRepository.ts"
import { describeCollection } from "../collection/CollectionSuite.ts"
import { clientOn, databases, describeOnEach, noDatabase, sqlStores } from "../support/Databases.ts"

const owner = "key_a"
const pet = { name: "Rex", categoryId: 1n, status: "sold" } as const

type Selection = Parameters<PetRepository["Service"]["list"]>[0]

const ids = (selection: Selection) =>
  Effect.flatMap(PetRepository, (pets) => Effect.map(pets.list(selection), (page) => page.items.map(({ id }) => id)))

// The stores of `Databases.ts` would run the periodic work of keys too, which takes long when the clock moves by a day.
const stores = [
  { name: "memory", skip: false, layer: Layer.merge(PetRepository.layerMemory, noDatabase) },
  ...databases.map((database) => ({ ...database, layer: Layer.provideMerge(sqlStores, database.layer) }))
]

describeCollection(stores, PetRepository, petsTable, (name) => ({ ...pet, name }))

describeOnEach(stores, "PetRepository", (it, store) => {
  it.effect("keeps every field of the schema: in create, replay, find, list and the idempotency key", () =>
    Effect.gen(function*() {
      const pets = yield* PetRepository
      const newPets = yield* Arbitrary.sampleEffect(Arbitrary.schema(NewPet), { count: 60, seed: "fields" })
      const { item: { id: after } } = yield* pets.create(pet)
      const created = yield* Effect.forEach(newPets, (newPet, index) =>
        Effect.gen(function*() {
          const create = (each: NewPet) => pets.create(each, { owner, key: `fields-${index}` })
          const { item } = yield* create(newPet)
          assert.deepStrictEqual(item, { id: item.id, ...newPet })
          assert.deepStrictEqual(yield* create(newPet), { item, isReplay: true })
          assert.deepStrictEqual(yield* pets.find(item.id), Option.some(item))
          for (const field of Struct.keys(NewPet.fields)) {
            const other = newPets.find((each) => each[field] !== newPet[field])
            const reused = yield* Effect.flip(create({ ...newPet, [field]: other?.[field] }))
            assert.strictEqual(reused._tag, "IdempotencyKeyReused", `another ${field}`)
          }
          return item
        }), { concurrency: "unbounded" })
      const expected = created.toSorted((a, b) => Number(a.id - b.id))
      for (const _ of ["read", "cached"]) {
        assert.deepStrictEqual((yield* pets.list({ after, limit: 100 })).items, expected)
      }
    }))

  if (store === "memory") return

  it.effect("has a table that rejects an operator's long name, unknown status and own id", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const insert = (fields: string, values: string) =>
        Effect.exit(sql.unsafe(`INSERT INTO pets (name, category_id, ${fields}) VALUES (${values})`))
      const exits = yield* Effect.all([
        insert("status", "repeat('\u{1f415}', 1000), 1, 'sold'"),
        insert("status", "repeat('x', 1001), 1, 'sold'"),
        insert("status", "'Rex', 1, 'lost'"),
        insert("id", "'Rex', 1, 1000000")
      ])
      assert.deepStrictEqual(exits.map(({ _tag }) => _tag), ["Success", "Failure", "Failure", "Failure"])
    }))
})

const storeWith = (setting: string, cacheSeconds: number) =>
  SqlCollection.layer(Settings.petCacheSeconds.config)(PetRepository, { ...petsTable, cacheSeconds }).pipe(
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ PET_CACHE_SECONDS: setting }))),
    Layer.fresh
  )
const caching = storeWith("30", 3_600)
const cachingStores = databases.map((database) => ({ ...database, layer: Layer.provideMerge(caching, database.layer) }))

describeOnEach(cachingStores, "The pet cache", (it, database) => {
  const sql = (text: string) =>
    Effect.flatMap(SqlClient.SqlClient, (client) => client.unsafe<{ readonly id: bigint }>(text))
  const insertInto = "INSERT INTO pets (id, name, category_id, status) OVERRIDING SYSTEM VALUE"
  const insert = (from: number, to: number) =>
    sql(`${insertInto} SELECT id, 'Rex', 1, 'sold' FROM generate_series(${from}, ${to}) AS id`)
  /** Each test starts with it, so that the failure of one test does not make others fail. */
  const empty = Effect.andThen(sql("DELETE FROM pets"), TestClock.adjust("31 seconds"))

  it.effect("reads a missing pet and a page that is not full each time", () =>
    Effect.gen(function*() {
      yield* empty
      const { find } = yield* PetRepository
      assert.deepStrictEqual(yield* find(4n), Option.none())
      yield* insert(1, 3)
      assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 3n])
      yield* insert(4, 6)
      assert.isTrue(Option.isSome(yield* find(4n)))
      assert.deepStrictEqual(yield* ids({ limit: 4 }), [1n, 2n, 3n, 4n])
    }))

  it.effect("caches found pets and full pages for PET_CACHE_SECONDS", () =>
    Effect.gen(function*() {
      yield* empty
      yield* insert(1, 6)
      const pets = yield* PetRepository
      const sold: Selection = { limit: 2, after: 1n, status: "sold" }
      const selections: ReadonlyArray<Selection> = [{ limit: 4 }, { limit: 3, after: 2n }, sold]
      const found = Effect.map(pets.find(1n), (pet) => Option.getOrUndefined(pet)?.status)
      const shown = Effect.all({ found, pages: Effect.forEach(selections, ids) })
      yield* ids({ limit: 6 })
      yield* sql("UPDATE pets SET status = 'pending'")
      yield* sql("DELETE FROM pets WHERE id = 4")
      const cached = { found: "sold" as const, pages: [[1n, 2n, 3n, 4n], [3n, 4n, 5n], [2n, 3n]] }
      assert.deepStrictEqual(yield* shown, cached)
      yield* TestClock.adjust("29999 millis")
      assert.deepStrictEqual(yield* shown, cached)
      yield* TestClock.adjust("2 millis")
      assert.deepStrictEqual(yield* shown, { found: "pending", pages: [[1n, 2n, 3n, 5n], [3n, 5n, 6n], []] })
    }))

  it.effect("holds nothing with PET_CACHE_SECONDS=0", () =>
    Effect.gen(function*() {
      yield* empty
      yield* insert(1, 6)
      const pets = yield* PetRepository
      const found = Effect.map(pets.find(1n), (pet) => Option.getOrUndefined(pet)?.status)
      const shown = Effect.all({ found, page: ids({ limit: 4 }) })
      assert.deepStrictEqual(yield* shown, { found: "sold" as const, page: [1n, 2n, 3n, 4n] })
      yield* sql("UPDATE pets SET status = 'pending'")
      yield* sql("DELETE FROM pets WHERE id = 4")
      assert.deepStrictEqual(yield* shown, { found: "pending" as const, page: [1n, 2n, 3n, 5n] })
    }).pipe(Effect.provide(storeWith("0", 3_600))))

  it.effect("caches items for the seconds of their table, if PET_CACHE_SECONDS is more", () =>
    Effect.gen(function*() {
      yield* empty
      yield* insert(1, 1)
      const status = Effect.map((yield* PetRepository).find(1n), (pet) => Option.getOrUndefined(pet)?.status)
      assert.strictEqual(yield* status, "sold")
      yield* sql("UPDATE pets SET status = 'pending'")
      yield* TestClock.adjust("999 millis")
      assert.strictEqual(yield* status, "sold")
      yield* TestClock.adjust("2 millis")
      assert.strictEqual(yield* status, "pending")
    }).pipe(Effect.provide(storeWith("30", 1))))

  it.effect("serves pages across settled gaps from the cache for PET_CACHE_SECONDS, including pages of one status", () =>
    Effect.gen(function*() {
      yield* empty
      yield* sql(`${insertInto} SELECT id, 'Rex', 1, CASE WHEN id % 2 = 0 THEN 'sold' ELSE 'pending' END
        FROM unnest(ARRAY[3, 4, 6, 7, 5000000, 5000001, 5000003]::bigint[]) AS id`)
      type Ids = ReadonlyArray<bigint>
      const selections: ReadonlyArray<readonly [Selection, ids: Ids, afterRestore: Ids]> = [
        [{ limit: 3 }, [3n, 4n, 6n], [1n, 2n, 3n]],
        [{ limit: 2, after: 2n }, [3n, 4n], [3n, 4n]],
        [{ limit: 2, after: 5n }, [6n, 7n], [6n, 7n]],
        [{ limit: 2, after: 100n }, [5000000n, 5000001n], [101n, 102n]],
        [{ limit: 5, after: 3n }, [4n, 6n, 7n, 5000000n, 5000001n], [4n, 5n, 6n, 7n, 101n]],
        [{ limit: 2, status: "sold" }, [4n, 6n], [1n, 2n]],
        [{ limit: 1, status: "pending", after: 6n }, [7n], [7n]]
      ]
      const pages = Effect.forEach(selections, ([selection]) => ids(selection))
      const expected = selections.map(([, page]) => page)
      // The first look at the writers finds the candidate, the second settles it, and the third read is cached.
      for (let read = 0; read < 3; read++) {
        assert.deepStrictEqual(yield* pages, expected)
        yield* TestClock.adjust("1 second")
      }
      assert.deepStrictEqual(yield* pages, expected)
      // A restore brings ids back.
      yield* insert(1, 2)
      yield* insert(101, 102)
      yield* insert(5, 5)
      assert.deepStrictEqual(yield* pages, expected)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(yield* pages, selections.map(([, , page]) => page))
      // The settled id has expired too, so a gap below it is read each time until the next checks.
      yield* insert(8, 8)
      assert.deepStrictEqual(yield* ids({ limit: 5, after: 3n }), [4n, 5n, 6n, 7n, 8n])
    }))

  if (database === "PostgreSQL") {
    it.effect("reads a page with a gap while the transaction that has the id is open, and shows its pet at once", () =>
      Effect.gen(function*() {
        yield* empty
        const { withTransaction } = yield* SqlClient.SqlClient
        const [inserted, committed] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const untilCommit = Effect.andThen(Deferred.succeed(inserted, undefined), Deferred.await(committed))
        const other = yield* Effect.forkChild(withTransaction(Effect.andThen(insert(1, 1), untilCommit)))
        yield* Deferred.await(inserted)
        yield* insert(2, 5)
        for (let second = 0; second < 10; second++) {
          assert.deepStrictEqual(yield* ids({ limit: 3 }), [2n, 3n, 4n])
          yield* TestClock.adjust("1 second")
        }
        yield* Deferred.succeed(committed, undefined)
        yield* Fiber.join(other)
        assert.deepStrictEqual(yield* ids({ limit: 3 }), [1n, 2n, 3n])
      }))

    it.effect("creates and changes pets of two processes in opposite orders, each once, without a deadlock", () =>
      Effect.gen(function*() {
        yield* empty
        const sql = yield* PgClient.PgClient
        const client = clientOn(Redacted.value(sql.config.url ?? assert.fail()))
        const services = Layer.build(Layer.fresh(Layer.provide(sqlStores, client)))
        const process = Effect.map(services, Context.get(PetRepository))
        const processes = [yield* process, yield* process]
        // A deadlock, and a wait for a lock that timed out, would each roll a statement back.
        const counts = sql`
          SELECT (SELECT count(*)::int FROM pets) AS pets, xact_rollback::int AS rollbacks
          FROM pg_stat_database WHERE datname = current_database()`
        const [before] = yield* counts
        for (let round = 0; round < 10; round++) {
          const keys = Array.from({ length: 250 }, (_, index) => `key ${round} ${index}`)
          const [one, other] = yield* Effect.forEach(processes, ({ create }, index) =>
            Effect.forEach(
              index === 0 ? keys : keys.toReversed(),
              (key) => Effect.map(create(pet, { owner, key }), ({ item: { id } }) => id),
              { concurrency: "unbounded" }
            ), { concurrency: 2 })
          assert.deepStrictEqual(one, other?.toReversed())
          const grown = yield* Effect.forEach(processes, ({ change }, index) =>
            Effect.forEach(
              (index === 0 ? one : one?.toReversed()) ?? [],
              (id) => change(id, (item) => ({ ...item, categoryId: item.categoryId + 1n })),
              { concurrency: "unbounded" }
            ), { concurrency: 2 })
          const counted = grown.map((all) => all.map((item) => Option.getOrThrow(item).categoryId))
          // Each change of a pet is of another version.
          assert.deepStrictEqual(
            counted[0]?.map((count, nth) => count + (counted[1]?.toReversed()[nth] ?? 0n)),
            one?.map(() => 5n)
          )
        }
        assert.deepStrictEqual(yield* counts, [{ ...before, pets: Number(before?.pets) + 2_500 }])
      }))
  }

  it.effect("serves a complete walk of the list across gaps, ids that share a slot, and ids above 2^53", () =>
    Effect.gen(function*() {
      yield* empty
      yield* sql(`${insertInto}
        SELECT id, 'near', 1, 'sold' FROM generate_series(1::bigint, 150) AS id WHERE id % 97 <> 0
        UNION ALL SELECT id + ${petsTable.maxCached}, 'far', 1, 'sold' FROM generate_series(1::bigint, 50) AS id
        UNION ALL SELECT 9007199254740990 + id, 'exact', 1, 'sold' FROM generate_series(0::bigint, 5) AS id
        UNION ALL SELECT 9223372036854775807, 'last', 1, 'sold'`)
      const expected = (yield* sql("SELECT id FROM pets ORDER BY id")).map(({ id }) => id)
      assert.lengthOf(expected, 206)
      for (const limit of [2, 21, 100, 21, 2]) {
        const walked: Array<bigint> = []
        for (let page: ReadonlyArray<bigint> = [0n]; page.length > 0; walked.push(...page)) {
          page = yield* ids({ limit, after: page.at(-1) })
        }
        assert.deepStrictEqual(walked, expected)
      }
      assert.deepStrictEqual(yield* ids({ limit: 1, after: 9223372036854775807n }), [])
      assert.deepStrictEqual(yield* ids({ limit: 1, after: -5n }), [1n])
    }))
})

it("The text that is hashed for an idempotency key stays the same, so stored keys stay valid", () => {
  const { canonicalText } = makeCodec(petsTable)
  const sold = { status: "sold", name: "Rex", categoryId: 9007199254740993n } as const
  assert.strictEqual(canonicalText(sold), `["Rex","9007199254740993","sold"]`)
  assert.strictEqual(canonicalText({ name: "\u{1f415}", categoryId: -1n }), `["\u{1f415}","-1",null]`)
})

it.each([0, 1])("A short name is cached for %d seconds from the start of its read, and a long one never", (seconds) => {
  let nowMs = 0
  const cache = CollectionCache.make<NewPet>({
    maxItems: petsTable.maxCached,
    isCached: petsTable.isCached,
    lifetimeMs: seconds * 1_000,
    nowMs: () => nowMs
  })
  const cached = () => [1n, 2n, 3n].flatMap((id) => cache.get(id)?.id ?? [])
  const cachePets = cache.beginLookup()
  nowMs = seconds * 600
  cachePets([{ ...pet, id: 1n, name: "x".repeat(100) }, { ...pet, id: 2n, name: "x".repeat(101) }])
  // Pet 524,291 replaces pet 3, because the cache has 524,288 slots.
  cachePets([{ ...pet, id: 3n }, { ...pet, id: 524_291n }])
  assert.deepStrictEqual(cached(), seconds === 0 ? [] : [1n])
  nowMs = 1_001
  assert.isEmpty(cached())
})
