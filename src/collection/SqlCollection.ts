/** A collection on PostgreSQL. Its table must have the columns that `Table` describes, and an identity column `id`. */
import { Clock, Effect, Exit, Layer, Option, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import type { Fragment } from "effect/sql/Statement"
import * as Expiry from "../database/Expiry.ts"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import { type Collection, type MakeStore, toPage } from "./Collection.ts"
import * as CollectionCache from "./CollectionCache.ts"
import * as Inserts from "./Inserts.ts"
import { type Arrays, type Filters, type Item, makeCodec, type Table } from "./Table.ts"

/** Deletes expired idempotency keys. All collections share this layer, so it is built once in a process. */
const expiry = Layer.effectDiscard(
  Expiry.deleteExpired({ table: "idempotency_keys", key: ["owner", "key"], column: "expires_at" })
)

const quote = (value: unknown): string => {
  const text = String(value).replaceAll("'", "''")
  return text.includes("\\") ? `E'${text.replaceAll("\\", "\\\\")}'` : `'${text}'`
}

const make = Effect.fnUntraced(function*<New extends object, Filter extends keyof New, Reused, Unavailable>(
  table: Table<New, Filter, Reused, Unavailable>,
  cacheSeconds: number
) {
  /** The batcher merges calls that pass the same object, so each call must pass a new object. */
  interface Change {
    readonly id: bigint
    readonly replace: (item: Item<New>) => New | undefined
  }

  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const { columns, matcher, readItems, write } = makeCodec(table)
  const tableName = sql.literal(`"${table.name}"`)
  // A page or a batch is read as one row, with an array for each field. In a trial with pages of 100 items, a row for
  // each item took 1.19 times the CPU (docs/performance.md).
  const arrays = sql.literal(
    columns.map(({ field, name }) => `array_agg("${name}") AS "${field}"`).concat("array_agg(id) AS id").join()
  )
  const cache = CollectionCache.make<New>({
    maxItems: table.maxCached,
    isCached: table.isCached,
    lifetimeMs: 1_000 * Math.min(cacheSeconds, table.cacheSeconds ?? cacheSeconds),
    nowMs: () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  })

  const readRows = (selection: Fragment) =>
    sql<Arrays>`SELECT ${arrays} FROM (SELECT * FROM ${tableName} WHERE ${selection}) AS item HAVING count(*) > 0`
  const isIn = (ids: ReadonlyArray<bigint>) => sql`id = ANY (${`{${ids.join()}}`}::text::bigint[])`
  const byId = (items: ReadonlyArray<Item<New>>) => new Map(items.map((item) => [item.id, item]))

  const findById = yield* StatementBatcher.read({
    name: `${table.name}.find`,
    errors: table.errors,
    size: 100,
    run: Effect.fnUntraced(function*(ids: ReadonlyArray<bigint>, isShared) {
      const cacheItems = isShared ? cache.beginLookup() : undefined
      const items = (yield* readRows(isIn(ids))).flatMap(readItems)
      cacheItems?.(items)
      return byId(items)
    })
  })

  /**
   * Returns the SQL of the filters. Values are literals: with a parameter, the generic plan of a prepared statement
   * cannot use a partial index.
   */
  const conditionOf = (filters: Filters<New, Filter>): string =>
    table.filters.map((field) => {
      const column = table.columns[field]
      const value = filters[field]
      return value === undefined ? "" : `"${column.name}" = ${quote(column.write(value))} AND `
    }).join("")

  const readPages = (size: string, condition: string, afters: ReadonlyArray<string>) =>
    sql<Arrays & { readonly page: number }>`
      SELECT page::int, found.*
      FROM unnest(${`{${afters.join()}}`}::text::bigint[]) WITH ORDINALITY AS asked (after, page)
      CROSS JOIN LATERAL (${readRows(sql.literal(`${condition}id > after ORDER BY id LIMIT ${size}`))}) AS found`

  /** The transactions that hold the lock which `SettledIds.ts` describes. */
  const findWriters = Effect.map(
    sql<{ readonly id: unknown }>`SELECT virtualtransaction AS id FROM pg_locks
        WHERE relation = ${sql.literal(`'"${table.name}"'`)}::regclass AND mode = 'RowExclusiveLock'`,
    (rows) => new Set(rows.map(({ id }) => id))
  )

  const findPage = yield* StatementBatcher.read({
    name: `${table.name}.list`,
    errors: table.errors,
    // Bounds memory: 8 pages of 101 items of 4,000 bytes, the largest of this service, are 3.2 MB. Two batches run at
    // once.
    size: 8,
    // A page key is a text of three lines (size, condition and `after`), so that the batcher merges requests for the
    // same page.
    run: Effect.fnUntraced(function*(pageKeys: ReadonlyArray<string>, isShared) {
      const check = isShared ? cache.settledIds.beginCheck() : undefined
      if (check !== undefined) check(yield* findWriters)
      const cacheItems = isShared ? cache.beginLookup() : undefined
      const found = new Map<string, ReadonlyArray<Item<New>>>()
      yield* Effect.forEach(
        Map.groupBy(pageKeys, (pageKey) => pageKey.slice(0, pageKey.lastIndexOf("\n"))),
        Effect.fnUntraced(function*([prefix, group]) {
          const size = prefix.slice(0, prefix.indexOf("\n"))
          const condition = prefix.slice(size.length + 1)
          const afters = group.map((pageKey) => pageKey.slice(prefix.length + 1))
          for (const row of yield* readPages(size, condition, afters)) {
            const [page, index] = [readItems(row), row.page - 1]
            found.set(group[index] ?? "", page)
            cacheItems?.(page, condition === "" ? BigInt(afters[index] ?? 0) : undefined)
          }
        }),
        { concurrency: "unbounded", discard: true }
      )
      return found
    })
  })

  const update = (items: ReadonlyArray<Item<New>>) => {
    const assignments = columns.map(({ field, name, type }) => `"${name}" = (item->>'${field}')::${type}`)
    const rows = JSON.stringify(items.map((item) => ({ ...write(item), id: String(item.id) })))
    return sql`
      UPDATE ${tableName} SET ${sql.literal(assignments.join())} FROM jsonb_array_elements(${rows}::text::jsonb) AS item
      WHERE ${tableName}.id = (item->>'id')::bigint`
  }

  /** Changes items by id. Locks them in ascending order, so that batches of several processes cannot deadlock. */
  const changeItems = Effect.fnUntraced(function*(groups: ReadonlyMap<bigint, ReadonlyArray<Change>>) {
    const ids = [...groups.keys()]
    const before = byId((yield* readRows(sql`${isIn(ids)} ORDER BY id FOR UPDATE`)).flatMap(readItems))
    const after = new Map(before)
    const outcomes = new Map<Change, Exit.Exit<Option.Option<Item<New>>>>()
    for (const [id, changes] of groups) {
      for (const change of changes) {
        const item = after.get(id)
        const outcome = yield* Effect.exit(Effect.sync(() => item && change.replace(item)))
        if (Exit.isSuccess(outcome) && outcome.value !== item) {
          if (outcome.value === undefined) after.delete(id)
          else after.set(id, { ...outcome.value, id })
        }
        outcomes.set(change, Exit.map(outcome, () => Option.fromUndefinedOr(after.get(id) ?? item)))
      }
    }
    const deleted = [...before.keys()].filter((id) => !after.has(id))
    const changed = [...after.values()].filter((item) => item !== before.get(item.id))
    if (changed.length > 0) yield* update(changed)
    if (deleted.length > 0) yield* sql`DELETE FROM ${tableName} WHERE ${isIn(deleted)}`
    return outcomes
  })

  const changeInBatch = yield* StatementBatcher.write({
    name: `${table.name}.change`,
    errors: table.errors,
    size: 100,
    run: (changes: ReadonlyArray<Change>, isShared) => {
      const groups = Map.groupBy(changes, ({ id }) => id)
      return cache.change([...groups.keys()], sql.withTransaction(changeItems(groups)), isShared)
    }
  })

  const collection: Collection<New, Filter, Reused, Unavailable> = {
    list: (selection) =>
      Effect.withFiber((fiber) => {
        const { after = 0n, limit } = selection
        const cached = StatementBatcher.isInTransaction(sql, fiber)
          ? undefined
          : cache.page(selection, matcher(selection))
        return cached === undefined
          ? Effect.map(
            findPage(`${limit + 1}\n${conditionOf(selection)}\n${after}`),
            (found = []) => toPage(found, limit)
          )
          : Effect.succeed(cached)
      }),
    create: yield* Inserts.make(table),
    find: (id) =>
      Effect.withFiber((fiber) => {
        const cached = StatementBatcher.isInTransaction(sql, fiber) ? undefined : cache.get(id)
        return cached === undefined ? Effect.map(findById(id), Option.fromUndefinedOr) : Effect.succeedSome(cached)
      }),
    change: (id, replace) =>
      Effect.flatMap(
        changeInBatch({ id, replace }),
        (outcome = Exit.die(new Error("A change has no outcome"))) => outcome
      )
  }
  return collection
})

/**
 * Makes stores on PostgreSQL. A store serves an item from its cache for at most `cacheSeconds`, and for at most the
 * `cacheSeconds` of its table. So a change by another process becomes visible within that time.
 */
export const layer = <E, R>(
  cacheSeconds: Effect.Effect<number, E, R>
): MakeStore<E, Exclude<R, Scope.Scope> | Layer.Services<typeof expiry>> =>
(service, table) =>
  Layer.merge(Layer.effect(service, Effect.flatMap(cacheSeconds, (seconds) => make(table, seconds))), expiry)
