/** The tests of any collection: on a table with a text column `name`, in memory and on each database. */
import { assert } from "@effect/vitest"
import { Effect, Exit, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { Collection } from "../../src/collection/Collection.ts"
import type { Table } from "../../src/collection/Table.ts"
import { describeOnEach } from "../support/Databases.ts"

const owner = "key_a"

interface Store<R, E> {
  readonly name: string
  readonly skip: boolean
  readonly layer: Layer.Layer<R, E>
}

export const describeCollection = <
  Id,
  New extends { readonly name: string },
  Reused,
  E
>(
  stores: ReadonlyArray<Store<Id | SqlClient.SqlClient, E>>,
  service: Effect.Effect<Collection<New, never, Reused>, never, Id>,
  table: Pick<Table<New, never, Reused>, "name" | "keyReused">,
  withName: (name: string) => New
) =>
  describeOnEach(stores, `The collection ${table.name}`, (it, store) => {
    it.effect("accepts one of several concurrent creates of different items with one idempotency key, and rejects the others", () =>
      Effect.gen(function*() {
        const items = yield* service
        const send = (name: string) =>
          items.create(withName(name), { owner, key: "several" }).pipe(
            Effect.map(({ item: { id, name } }) => ({ id, name })),
            Effect.catchIf((failure) => failure === table.keyReused, () => Effect.succeed("reused" as const))
          )
        const { item: before } = yield* items.create(withName("Rex"))
        const names = Array.from({ length: 60 }, (_, index) => `${index % 20}`)
        const outcomes = yield* Effect.forEach(names, send, { concurrency: "unbounded" })
        const [stored, ...others] = (yield* items.list({ limit: 100, after: before.id })).items
        assert.isEmpty(others)
        const winner = { id: stored?.id, name: stored?.name }
        assert.deepStrictEqual(outcomes, names.map((name) => name === winner.name ? winner : "reused"))
        // A batch whose first create does not have the item of the committed key has the same outcomes.
        const later = yield* Effect.forEach(names.toReversed(), send, { concurrency: "unbounded" })
        assert.deepStrictEqual(later, outcomes.toReversed())
      }))

    it.effect("creates an item for each owner of the same idempotency key, even at the same time", () =>
      Effect.gen(function*() {
        const items = yield* service
        const owners = ["key_a", "key_b", "key_c"]
        const send = (owner: string) => items.create(withName(owner), { owner, key: "order-17" })
        const created = yield* Effect.forEach(owners, send, { concurrency: "unbounded" })
        assert.deepStrictEqual(
          created.map(({ isReplay, item: { name } }) => [name, isReplay]),
          owners.map((o) => [o, false])
        )
        assert.strictEqual(new Set(created.map(({ item: { id } }) => id)).size, owners.length)
        const replayed = yield* Effect.forEach(owners, send, { concurrency: "unbounded" })
        assert.deepStrictEqual(replayed, created.map((each) => ({ ...each, isReplay: true })))
      }))

    it.effect("keeps the item of an idempotency key for exactly 24 hours, even among other creates", () =>
      Effect.gen(function*() {
        const items = yield* service
        const create = (name: string, key: string) => items.create(withName(name), { owner, key })
        // Expired keys are deleted every ten minutes, and not at the end of these.
        yield* TestClock.adjust("1 second")
        const { item: old } = yield* create("Rex", "expired")
        yield* TestClock.adjust("1 hour")
        const { item: live } = yield* create("live", "live")
        yield* TestClock.adjust("82799 seconds")
        assert.deepStrictEqual(yield* create("Rex", "expired"), { item: old, isReplay: true })
        yield* TestClock.adjust("1 second")
        const [renewed, repeated, again, created, same] = yield* Effect.all([
          create("Tom", "expired"),
          create("live", "live"),
          create("Tom", "expired"),
          create("Rex", "fresh"),
          Effect.flip(create("Rex", "expired"))
        ], { concurrency: "unbounded" })
        assert.deepStrictEqual(repeated, { item: live, isReplay: true })
        assert.deepStrictEqual(again, { item: renewed.item, isReplay: true })
        assert.deepStrictEqual([renewed.isReplay, created.isReplay], [false, false])
        assert.strictEqual(same, table.keyReused)
        assert.deepStrictEqual(yield* items.find(renewed.item.id), Option.some(renewed.item))
        // The renewed key is valid for another 24 hours.
        yield* TestClock.adjust("86399 seconds")
        assert.deepStrictEqual((yield* create("Tom", "expired")).item, renewed.item)
      }))

    it.effect("changes and deletes an item: no read shows it as it was before, and changes of one item come one after the other", () =>
      Effect.gen(function*() {
        const items = yield* service
        const created = yield* Effect.forEach(["a", "b", "c", "d"], (name) => items.create(withName(name)))
        const [a, b, c] = created.map(({ item }) => item.id)
        if (a === undefined || b === undefined || c === undefined) throw new Error("no ids")
        const shown = Effect.map(
          Effect.all({ found: items.find(a), page: items.list({ limit: 3, after: a - 1n }) }),
          ({ found, page }) => [Option.getOrUndefined(found)?.name, page.items.map(({ name }) => name).join("")]
        )
        // The second read is from the cache.
        for (const _ of ["read", "cached"]) assert.deepStrictEqual(yield* shown, ["a", "abc"])
        const append = (id: bigint, letter: string) =>
          items.change(id, (item) => ({ ...item, name: item.name + letter }))
        const changed = yield* Effect.all(
          [append(c, "1"), append(a, "1"), append(b, "1"), append(a, "2"), append(a, "3"), append(0n, "1")],
          { concurrency: "unbounded" }
        )
        const names = changed.map((item) => Option.getOrUndefined(item)?.name)
        assert.deepStrictEqual(names, ["c1", "a1", "b1", "a12", "a123", undefined])
        for (const _ of ["read", "cached"]) {
          assert.deepStrictEqual(yield* shown, ["a123", "a123b1c1"])
          yield* TestClock.adjust("1 second")
        }
        const remove = (id: bigint) => Effect.map(items.change(id, () => undefined), Option.getOrUndefined)
        const removed = yield* Effect.all([remove(a), append(b, "2"), remove(a)], { concurrency: "unbounded" })
        assert.deepStrictEqual([removed[0]?.name, removed[2]], ["a123", undefined])
        assert.deepStrictEqual(yield* shown, [undefined, "b12c1d"])
        // A change that fails leaves the others of its batch alone.
        const exits = yield* Effect.all([
          Effect.exit(items.change(b, () => assert.fail("replace"))),
          Effect.exit(append(b, "3"))
        ], { concurrency: "unbounded" })
        assert.deepStrictEqual(exits.map(({ _tag }) => _tag), ["Failure", "Success"])
        assert.deepStrictEqual(yield* shown, [undefined, "b123c1d"])
      }))

    if (store === "memory") return

    it.effect("changes each item of several batches, and nothing of a transaction that rolls back", () =>
      Effect.gen(function*() {
        const items = yield* service
        const created = yield* Effect.forEach(Array.from({ length: 20 }), () => items.create(withName("")))
        const ids = created.map(({ item }) => item.id)
        const append = (id: bigint) => items.change(id, (item) => ({ ...item, name: `${item.name}x` }))
        const { withTransaction } = yield* SqlClient.SqlClient
        yield* Effect.all([
          Effect.forEach(ids, append, { concurrency: "unbounded" }),
          Effect.forEach(ids.toReversed(), append, { concurrency: "unbounded" }),
          Effect.flip(withTransaction(Effect.andThen(append(ids[0] ?? 0n), Effect.fail("rolled back"))))
        ], { concurrency: "unbounded", discard: true })
        const page = yield* items.list({ limit: 20, after: (ids[0] ?? 0n) - 1n })
        assert.deepStrictEqual(page.items.map(({ name }) => name), ids.map(() => "xx"))
      }))

    it.effect("fails only the creates whose values SQL rejects, and stores all others of their batch", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const name = sql(table.name)
        const items = yield* service
        yield* Effect.acquireRelease(
          sql`ALTER TABLE ${name} ADD CONSTRAINT rejected CHECK (name <> 'rejected')`,
          () => Effect.orDie(sql`ALTER TABLE ${name} DROP CONSTRAINT rejected`)
        )
        for (const rejected of [[70], [0, 1, 50, 99], Array.from({ length: 100 }).keys().toArray()]) {
          const { item: before } = yield* items.create(withName("Rex"))
          const exits = yield* Effect.forEach(Array.from({ length: 100 }).keys(), (index) =>
            Effect.exit(items.create(
              withName(rejected.includes(index) ? "rejected" : `${index}`),
              index % 2 === 0 ? undefined : { owner, key: `rejected ${rejected.length} ${index}` }
            )), { concurrency: "unbounded" })
          const failed = exits.flatMap((exit, index) => Exit.isFailure(exit) ? [index] : [])
          assert.deepStrictEqual(failed, rejected)
          for (const index of rejected) assert.match(String(exits[index]), /Die\(.*rejected/s)
          const stored = (yield* items.list({ limit: 100, after: before.id })).items
          const created = exits.flatMap((exit) => Exit.isSuccess(exit) ? [exit.value.item] : [])
          assert.sameDeepMembers([...stored], created)
        }
      }))

    it.effect("runs within a transaction of the caller: sees its changes, caches nothing of it, and leaves nothing if it rolls back", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const name = sql(table.name)
        const items = yield* service
        const { item: old } = yield* items.create(withName("Rex"))
        const after = old.id - 1n
        const seen = Effect.all({ found: items.find(old.id), page: items.list({ limit: 1, after }) })
        const outside = yield* seen
        assert.deepStrictEqual(outside, { found: Option.some(old), page: { items: [old] } })
        // The page is full now, so it is cached too.
        yield* items.create(withName("Rex"))
        yield* seen
        const failure = yield* Effect.flip(sql.withTransaction(Effect.gen(function*() {
          yield* sql`UPDATE ${name} SET name = 'changed' WHERE id = ${old.id}`
          const { found, page } = yield* seen
          assert.deepStrictEqual([Option.getOrUndefined(found)?.name, page.items[0]?.name], ["changed", "changed"])
          const { item: created } = yield* items.create(withName("Rex"), { owner, key: "rolled back" })
          assert.deepStrictEqual(yield* items.find(created.id), Option.some(created))
          return yield* Effect.fail(created.id)
        })))
        const id = typeof failure === "bigint" ? failure : assert.fail(String(failure))
        assert.deepStrictEqual(yield* items.find(id), Option.none())
        assert.deepStrictEqual((yield* seen).found, Option.some(old))
        assert.isFalse((yield* items.create(withName("Rex"), { owner, key: "rolled back" })).isReplay)
        const kept = yield* sql.withTransaction(items.create(withName("Rex")))
        assert.deepStrictEqual(yield* items.find(kept.item.id), Option.some(kept.item))
      }))

    it.effect("makes items visible in ascending order of ids, with and without idempotency keys", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const name = sql(table.name)
        const items = yield* service
        const visible = sql`SELECT id FROM ${name} WHERE name = 'ordered' ORDER BY id`
        const snapshots: Array<ReadonlyArray<object>> = []
        // The yield lets the event loop turn, so that a test whose creates have no end times out.
        const watch = Effect.forever(Effect.tap(Effect.map(visible, (rows) => snapshots.push(rows)), Effect.yieldNow))
        const create = (_: unknown, index: number) =>
          items.create(withName("ordered"), index % 2 === 0 ? undefined : { owner, key: `ordered ${index}` })
        yield* Effect.raceFirst(Effect.forEach(Array.from({ length: 400 }), create, { concurrency: 40 }), watch)
        const all = yield* visible
        assert.lengthOf(all, 400)
        // Creates that arrive together share a commit.
        const [commits] =
          yield* sql`SELECT count(DISTINCT xmin::text)::int AS count FROM ${name} WHERE name = 'ordered'`
        assert.isBelow(Number(commits?.count), 100)
        assert.isNotEmpty(snapshots.filter(({ length }) => length > 0 && length < 400), "no read during the creates")
        for (const rows of snapshots) assert.deepStrictEqual(rows, all.slice(0, rows.length))
      }))
  })
