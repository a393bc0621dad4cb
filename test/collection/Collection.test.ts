/** A second resource beside the pets: categories, with a table of their own. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Tracer } from "effect"
import { SqlClient } from "effect/sql"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import type { ServiceUnavailable } from "../../src/api/Errors.ts"
import { type Collection, layerMemory } from "../../src/collection/Collection.ts"
import * as SqlCollection from "../../src/collection/SqlCollection.ts"
import { makeCodec, optional, type Table, text } from "../../src/collection/Table.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { databases, describeOnEach, noDatabase, sqlStores } from "../support/Databases.ts"
import { describeCollection } from "./CollectionSuite.ts"

interface NewCategory {
  readonly name: string
  readonly description?: string
}

const table: Table<NewCategory, never, "reused", ServiceUnavailable> = {
  name: "categories",
  columns: { name: text("name"), description: optional(text("description")) },
  filters: [],
  keyReused: "reused",
  errors: databaseErrors,
  maxCached: 1_000
}

class Categories
  extends Context.Service<Categories, Collection<NewCategory, never, "reused", ServiceUnavailable>>()("test/Categories")
{
  static readonly layerMemory = layerMemory(Categories, table)
}

const created = Layer.effectDiscard(Effect.flatMap(SqlClient.SqlClient, (sql) =>
  sql`CREATE TABLE categories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    description text
  )`))
const onSql = Layer.merge(
  sqlStores,
  Layer.provide(SqlCollection.layer(Effect.succeed(300))(Categories, table), created)
)
const stores = [
  { name: "memory", skip: false, layer: Layer.mergeAll(PetRepository.layerMemory, Categories.layerMemory, noDatabase) },
  ...databases.map((database) => ({ ...database, layer: Layer.provideMerge(onSql, database.layer) }))
]

describeCollection(stores, Categories, table, (name) => ({ name }))

describeOnEach(stores, "Collections", (it) => {
  it.effect("never answer for one another: an idempotency key of a pet is rejected for a category, and replays the pet", () =>
    Effect.gen(function*() {
      const textOf = (name: string) => makeCodec({ ...table, name }).canonicalText({ name: "Dogs" })
      assert.notStrictEqual(textOf("tags"), textOf("categories"), "tables with the same columns")
      const [pets, categories] = [yield* PetRepository, yield* Categories]
      const claim = { owner: "key_a", key: "shared" }
      const { item: pet } = yield* pets.create({ name: "Dogs", categoryId: 1n }, claim)
      assert.strictEqual(yield* Effect.flip(categories.create({ name: "Dogs" }, claim)), "reused")
      assert.deepStrictEqual(yield* pets.create({ name: "Dogs", categoryId: 1n }, claim), { item: pet, isReplay: true })
      const other = { ...claim, key: "other" }
      const { item: category } = yield* categories.create({ name: "Dogs", description: "They bark" }, other)
      assert.deepStrictEqual(category, { id: category.id, name: "Dogs", description: "They bark" })
      const reused = yield* Effect.flip(pets.create({ name: "Dogs", categoryId: 1n }, other))
      assert.strictEqual(reused._tag, "IdempotencyKeyReused")
    }))
})

type Calls = ReadonlyArray<Effect.Effect<unknown, unknown>>

/** Runs calls together, without a database, so each of them fails. Returns the names of the spans of their batches. */
const batchesOf = Effect.fnUntraced(function*(makeCalls: (categories: typeof Categories["Service"]) => Calls) {
  const names: Array<string> = []
  const span: Tracer.Tracer["span"] = (options) => {
    names.push(options.name)
    return Tracer.nativeTracer.span(options)
  }
  const collection = Layer.fresh(SqlCollection.layer(Effect.succeed(300))(Categories, table))
  yield* Effect.gen(function*() {
    const calls = makeCalls(Context.get(yield* Layer.build(collection), Categories))
    const traced = calls.map((call) => Effect.exit(Effect.withSpan(call, "request")))
    yield* Effect.all(traced, { concurrency: "unbounded" })
  }).pipe(Effect.provideService(Tracer.Tracer, Tracer.make({ span })), Effect.provide(noDatabase), Effect.scoped)
  return names.filter((name) => name.startsWith("categories"))
})

const numbers = Array.from({ length: 8 }, (_, index) => index)

it.effect.each<readonly [name: string, makeCalls: (categories: typeof Categories["Service"]) => Calls]>([
  ["list", ({ list }) => numbers.map((n) => list({ limit: 1, after: BigInt(n) }))],
  ["find", ({ find }) => numbers.map((n) => find(BigInt(n)))],
  ["create", ({ create }) => numbers.map((n) => create({ name: String(n) }))],
  ["change", ({ change }) => numbers.map((n) => change(BigInt(n), (item) => item))]
])(
  "Calls of %s that arrive together share a statement, whose span has this name",
  ([name, makeCalls]) =>
    Effect.map(batchesOf(makeCalls), (batches) => assert.deepStrictEqual(batches, [`categories.${name}`]))
)
