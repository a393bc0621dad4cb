/**
 * Implements the pet repository on PostgreSQL.
 *
 * Concurrent calls of one operation share one statement, so that few statements are in flight at any load.
 */
import { Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { maxPageCharacters, type Pet, type PetStatus } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import * as Expiry from "../database/Expiry.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import * as PetCache from "./PetCache.ts"
import * as PetInserts from "./PetInserts.ts"
import { PetRepository } from "./PetRepository.ts"
import type { PetStore } from "./PetStore.ts"

/**
 * The bounds of a batch of reads. Two statements of an operation run at once: the database executes one while this
 * process reads the result of the other.
 */
const readBatch = { concurrency: 2, size: 100, timeout: RequestBatcher.callTimeout }

const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const cache = yield* PetCache.make
  const columns = sql.literal(`id, name, category_id AS "categoryId", status`)

  const findById = yield* RequestBatcher.make({
    ...readBatch,
    run: Effect.fnUntraced(function*(ids: ReadonlyArray<bigint>) {
      const cachePets = cache.beginLookup()
      const rows = yield* sql<PetRow>`SELECT ${columns} FROM pets WHERE id = ANY (${`{${ids.join()}}`}::text::bigint[])`
      const found = new Map(rows.map((row) => [row.id, fromPetRow(row)]))
      cachePets(found.values(), ids.filter((id) => !found.has(id)))
      return found
    })
  })

  const find: PetStore["find"] = (id) =>
    Effect.suspend(() => {
      const cached = cache.get(id)
      return cached === undefined ? Effect.map(findById(id), Option.fromUndefinedOr) : Effect.succeedSome(cached)
    })

  /**
   * Reads one page of at most `size` pets for each start. A page has the pets of this status with an id of at least the
   * start. An empty `status` selects all pets.
   */
  const readPages = (size: string, status: string, starts: ReadonlyArray<string>) => {
    // The condition bounds both columns and has no `status = …`. Only the index on both columns then has the required
    // order, so that PostgreSQL uses it however rare a status is.
    const [condition, order] = status === ""
      ? [sql`id >= start`, sql.literal("id")]
      : [sql`(status, id) >= (${status}, start) AND (status, id) <= (${status}, ${maxId})`, sql.literal("status, id")]
    // The size is part of the text, not a parameter, so that the planner of PostgreSQL knows how few rows it must read.
    // One array per column costs a quarter less than rows, in the database and in this process.
    return sql<PageRow>`
      SELECT page::int, found.*
      FROM unnest(${`{${starts.join()}}`}::text::bigint[]) WITH ORDINALITY AS asked (start, page)
      CROSS JOIN LATERAL (
        SELECT
          array_agg(id) AS ids,
          array_agg(CASE WHEN octet_length(name) <= ${sql.literal(String(maxNameBytesInPage))} THEN name END) AS names,
          array_agg(category_id) AS "categoryIds",
          array_agg(status) AS statuses
        FROM (
          SELECT id, name, category_id, status FROM pets WHERE ${condition} ORDER BY ${order} LIMIT ${sql.literal(size)}
        ) AS pet
      ) AS found
      WHERE ids IS NOT NULL`
  }

  const findPage = yield* RequestBatcher.make({
    ...readBatch,
    size: maxPagesPerStatement,
    // A batch item is the text "size status start". Calls for the same page have equal texts and share one item.
    run: Effect.fnUntraced(function*(pageKeys: ReadonlyArray<string>) {
      const cachePets = cache.beginLookup()
      const found = new Map<string, ReadonlyArray<Pet | bigint>>()
      yield* Effect.forEach(
        Map.groupBy(pageKeys, (pageKey) => pageKey.slice(0, pageKey.lastIndexOf(" "))),
        Effect.fnUntraced(function*([prefix, group]) {
          const [size = "", status = ""] = prefix.split(" ")
          const rows = yield* readPages(size, status, group.map((pageKey) => pageKey.slice(prefix.length + 1)))
          for (const row of rows) found.set(group[row.page - 1] ?? "", fromPageRow(row))
        }),
        { concurrency: "unbounded", discard: true }
      )
      for (const page of found.values()) cachePets(page.filter(isPet))
      return found
    })
  })

  const list: PetStore["list"] = (selection, beforeLongNames = Effect.void) =>
    Effect.suspend(() => {
      const { after = minId - 1n, limit, status } = selection
      if (after === maxId) return Effect.succeed([])
      const cached = cache.page(selection)
      return cached === undefined
        ? Effect.flatMap(findPage(`${cache.sizeOf(selection)} ${status ?? ""} ${after + 1n}`), (found = []) => {
          const page = found.slice(0, limit)
          if (page.every(isPet)) return Effect.succeed(page)
          const isLarge = page.filter((pet) => !isPet(pet)).length > maxLongNamesAtOnce
          const completePage = Effect.andThen(isLarge ? beforeLongNames : Effect.void, readLongNames(page))
          return Effect.filterOrElse(
            completePage,
            (pets) => pets !== undefined,
            () => list(selection, beforeLongNames)
          )
        })
        : Effect.succeed(cached)
    })

  /**
   * Completes a page with the pets whose names are long, `maxLongNamesAtOnce` at a time. The page ends early when its
   * names exceed `maxPageCharacters`. Returns `undefined` if one of the pets was deleted meanwhile.
   */
  const readLongNames = Effect.fnUntraced(function*(
    page: ReadonlyArray<Pet | bigint>
  ): Effect.fn.Return<ReadonlyArray<Pet> | undefined> {
    const pets: Array<Pet> = []
    let characters = 0
    for (let start = 0; start < page.length; start += maxLongNamesAtOnce) {
      const found = yield* Effect.forEach(
        page.slice(start, start + maxLongNamesAtOnce),
        (pet) => isPet(pet) ? Effect.succeed(pet) : findById(pet),
        { concurrency: "unbounded" }
      )
      for (const pet of found) {
        if (pet === undefined) return undefined
        pets.push(pet)
        characters += pet.name.length
        if (characters > maxPageCharacters) return pets
      }
    }
    return pets
  })

  const create = yield* PetInserts.make

  yield* Expiry.deleteExpired({
    table: "idempotency_keys",
    column: "expires_at",
    warning: "Expired idempotency keys cannot be deleted"
  })

  return PetRepository.of({ list, create, find })
})

/**
 * Stores pets on PostgreSQL, in the tables of `migrations/`. A database error is a defect, because callers cannot fix
 * it.
 */
export const layer = Layer.effect(PetRepository, make).pipe(Layer.provide(ChangePoller.layer))

/**
 * The maximum size in bytes of a name that a statement of pages reads. Longer names are read later, so that all pages
 * of one statement always fit into memory.
 */
const maxNameBytesInPage = 1_024

/**
 * The maximum number of pages in one statement. The whole result is in memory at once: 3 MB with names of
 * `maxNameBytesInPage`.
 */
const maxPagesPerStatement = 32

/**
 * The maximum number of long names in one read. It is also the maximum that a list reads without `beforeLongNames`,
 * because so few always fit into memory.
 */
const maxLongNamesAtOnce = 4

// The range of an id, a signed 64-bit integer.
const minId = -(2n ** 63n)
const maxId = 2n ** 63n - 1n

type PetRow = Omit<Pet, "status"> & { readonly status: PetStatus | null }

/** A row of `readPages`: the pets of one page, one array per column. `page` is the index of its start, from 1. */
interface PageRow {
  readonly page: number
  readonly ids: ReadonlyArray<bigint>
  /** The names. A name of more than `maxNameBytesInPage` is `null`. */
  readonly names: ReadonlyArray<string | null>
  readonly categoryIds: ReadonlyArray<bigint>
  readonly statuses: ReadonlyArray<PetStatus | null>
}

/** One shared string per status. Without it, each cached pet would hold a string of its own from the database. */
const internedStatuses = { available: "available", pending: "pending", sold: "sold" } as const

/** Converts a row to a pet. A pet without a status has no `status`, because the field is optional (SPEC §2). */
const fromPetRow = ({ id, name, categoryId, status }: PetRow): Pet =>
  status === null ? { id, name, categoryId } : { id, name, categoryId, status: internedStatuses[status] }

/** Converts a row to the pets of a page. A pet whose name is too long for the statement is only its id. */
const fromPageRow = ({ categoryIds, ids, names, statuses }: PageRow): ReadonlyArray<Pet | bigint> => {
  const pets: Array<Pet | bigint> = []
  for (const [index, id] of ids.entries()) {
    const name = names[index], categoryId = categoryIds[index], status = statuses[index]
    if (name === undefined || categoryId === undefined || status === undefined) throw new Error("A column is too short")
    pets.push(name === null ? id : fromPetRow({ id, name, categoryId, status }))
  }
  return pets
}

const isPet = (item: Pet | bigint): item is Pet => typeof item !== "bigint"
