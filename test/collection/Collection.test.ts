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

it.effect("Each batch of a collection has a span with the name of its operation", () =>
  Effect.gen(function*() {
    const names: Array<string> = []
    const span: Tracer.Tracer["span"] = (options) => {
      names.push(options.name)
      return Tracer.nativeTracer.span(options)
    }
    const collections = Layer.build(Layer.fresh(SqlCollection.layer(Effect.succeed(300))(Categories, table)))
    yield* Effect.gen(function*() {
      const { change, create, find, list } = Context.get(yield* collections, Categories)
      // Without a database, each of them fails.
      const calls: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
        list({ limit: 1 }),
        find(1n),
        create({ name: "a" }),
        change(1n, (item) => item)
      ]
      for (const call of calls) yield* Effect.exit(Effect.withSpan(call, "request"))
    }).pipe(Effect.provideService(Tracer.Tracer, Tracer.make({ span })))
    const expected = ["list", "find", "create", "change"].map((name) => `categories.${name}`)
    assert.deepStrictEqual(names.filter((name) => name.startsWith("categories")), expected)
  }).pipe(Effect.provide(noDatabase)))
