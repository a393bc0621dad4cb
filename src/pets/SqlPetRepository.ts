/**
 * The pet repository on PostgreSQL. Concurrent requests of a kind share one statement. Few statements are in flight at
 * any load, and one commit serves many creates.
 */
import { Clock, Duration, Effect, Option, Semaphore } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { IdempotencyKeyReused } from "../api/Errors.ts"
import { maxPageCharacters, type NewPet, type Pet, type PetStatus } from "../api/Pets.ts"
import * as Expiry from "../database/Expiry.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import { fingerprint, type Idempotency, keyLifetime, keyReused } from "./Idempotency.ts"
import * as PetCache from "./PetCache.ts"
import type { PetStore } from "./PetStore.ts"

/** The timeout of a call when the network loses packets. The server ends its statements earlier by itself. */
const timeout = Duration.seconds(4)

/** Two statements of a kind run at once: the database works on one while the reply to the other is read. */
const bounds = { concurrency: 2, size: 100, timeout }

export const makeSqlPetRepository = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const cache = yield* PetCache.make
  const columns = sql.literal(`id, name, category_id AS "categoryId", status`)
  // A subselect reads the sequence's name once per statement instead of once per pet, which saves the database a sixth
  // of a create.
  const nextId = sql.literal("nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass))")

  const lookUp = yield* RequestBatcher.make({
    ...bounds,
    run: Effect.fnUntraced(function*(ids: ReadonlyArray<bigint>) {
      const cacheFound = cache.beginLookup()
      const rows = yield* sql<Row>`SELECT ${columns} FROM pets WHERE id = ANY (${`{${ids.join()}}`}::text::bigint[])`
      const found = new Map(rows.map((row) => [row.id, fromRow(row)]))
      cacheFound(found.values(), ids.filter((id) => !found.has(id)))
      return found
    })
  })

  const find: PetStore["find"] = (id) =>
    Effect.suspend(() => {
      const known = cache.get(id)
      return known === undefined ? Effect.map(lookUp(id), Option.fromUndefinedOr) : Effect.succeedSome(known)
    })

  /** Reads pages of `size` pets, one after each of several ids. */
  const pages = (size: string, status: string, starts: ReadonlyArray<string>) => {
    // The condition bounds both columns without `status = …`, so that only the index of both columns has the required
    // order, however rare a status is.
    const [condition, order] = status === ""
      ? [sql`id >= start`, sql.literal("id")]
      : [sql`(status, id) >= (${status}, start) AND (status, id) <= (${status}, ${highest})`, sql.literal("status, id")]
    // The size is in the statement, so that PostgreSQL knows how few rows it must read. An array per column costs a
    // quarter less than rows, on both sides.
    return sql<Page>`
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

  const look = yield* RequestBatcher.make({
    ...bounds,
    size: maxPagesPerStatement,
    // An item is the text "size status start", so that calls for the same page are the same item.
    run: Effect.fnUntraced(function*(selections: ReadonlyArray<string>) {
      const cacheFound = cache.beginLookup()
      const found = new Map<string, ReadonlyArray<Pet | bigint>>()
      yield* Effect.forEach(
        Map.groupBy(selections, (selection) => selection.slice(0, selection.lastIndexOf(" "))),
        Effect.fnUntraced(function*([kind, asked]) {
          const [size = "", status = ""] = kind.split(" ")
          const rows = yield* pages(size, status, asked.map((selection) => selection.slice(kind.length + 1)))
          for (const page of rows) found.set(asked[page.page - 1] ?? "", fromPage(page))
        }),
        { concurrency: "unbounded", discard: true }
      )
      for (const page of found.values()) cacheFound(page.filter(isPet))
      return found
    })
  })

  const list: PetStore["list"] = (selection, beforeLongNames = Effect.void) =>
    Effect.suspend(() => {
      const { after = lowest - 1n, limit, status } = selection
      if (after === highest) return Effect.succeed([])
      const known = cache.page(selection)
      return known === undefined
        ? Effect.flatMap(look(`${cache.sizeOf(selection)} ${status ?? ""} ${after + 1n}`), (found = []) => {
          const page = found.slice(0, limit)
          if (page.every(isPet)) return Effect.succeed(page)
          const isLarge = page.filter((pet) => !isPet(pet)).length > maxUnannouncedNames
          const complete = Effect.andThen(isLarge ? beforeLongNames : Effect.void, whole(page))
          return Effect.filterOrElse(
            complete,
            (pets) => pets !== undefined,
            () => list(selection, beforeLongNames)
          )
        })
        : Effect.succeed(known)
    })

  /** Reads the long names of a page, a few at a time. Returns `undefined` if one of its pets was deleted meanwhile. */
  const whole = Effect.fnUntraced(function*(
    page: ReadonlyArray<Pet | bigint>
  ): Effect.fn.Return<ReadonlyArray<Pet> | undefined> {
    const pets: Array<Pet> = []
    let length = 0
    for (let start = 0; start < page.length; start += maxUnannouncedNames) {
      const found = yield* Effect.forEach(
        page.slice(start, start + maxUnannouncedNames),
        (pet) => isPet(pet) ? Effect.succeed(pet) : lookUp(pet),
        { concurrency: "unbounded" }
      )
      for (const pet of found) {
        if (pet === undefined) return undefined
        pets.push(pet)
        length += pet.name.length
        if (length > maxPageCharacters) return pets
      }
    }
    return pets
  })

  /** Moves the sequence past ids that an operator's INSERT took. */
  const skipTaken = Effect.asVoid(sql`
    SELECT setval(ids, (
      SELECT id FROM pets AS taken
      WHERE id >= last AND NOT EXISTS (SELECT FROM pets WHERE id = taken.id + 1)
      ORDER BY id LIMIT 1
    ))
    FROM (SELECT pg_get_serial_sequence('pets', 'id')::regclass AS ids) AS sequence,
    LATERAL (SELECT pg_sequence_last_value(ids) AS last) AS value
    WHERE EXISTS (SELECT FROM pets WHERE id = last)`)
  const pastTaken = <A, E extends SqlError.SqlError | IdempotencyKeyReused>(
    addition: Effect.Effect<A, E>
  ): Effect.Effect<A, E | SqlError.SqlError> =>
    addition.pipe(
      Effect.tapError((error) => isTaken(error) ? skipTaken : Effect.void),
      Effect.retry({ while: isTaken, times: 3 })
    )

  // One statement at a time: creates that arrive meanwhile share the next commit, and ids become visible in order.
  const add = yield* RequestBatcher.make({
    concurrency: 1,
    size: 250,
    timeout,
    run: Effect.fnUntraced(function*(pets: ReadonlyArray<NewPet>) {
      const values = JSON.stringify(pets.map(({ categoryId, name, status }) => [name, String(categoryId), status]))
      // The ids are assigned before the INSERT, because the rows that an INSERT returns have no order.
      const rows = yield* sql<{ readonly id: bigint }>`
        WITH added AS MATERIALIZED (
          SELECT ${nextId} AS id, pet, nth
          FROM jsonb_array_elements(${values}::text::jsonb) WITH ORDINALITY AS asked (pet, nth)
        ), inserted AS (
          INSERT INTO pets (id, name, category_id, status) SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM added
        )
        SELECT id FROM added ORDER BY nth`.pipe(pastTaken)
      return new Map(pets.map((pet, nth) => [pet, rows[nth]?.id]))
    })
  })

  const create = Effect.fnUntraced(function*(pet: NewPet, idempotency?: Idempotency) {
    // A batch runs an equal item once. A copy of the object is another item, so that each create makes a pet.
    const id = yield* idempotency === undefined ? add({ ...pet }) : addOnce(pet, idempotency)
    return id === undefined ? yield* Effect.die(new Error("INSERT returned no id")) : { id, ...pet }
  })

  /** Returns the id of the pet that the idempotency key created, now or earlier. */
  const claim = Effect.fnUntraced(function*(
    pet: NewPet,
    { key, owner }: Idempotency
  ): Effect.fn.Return<bigint, IdempotencyKeyReused | SqlError.SqlError> {
    const now = yield* Clock.currentTimeMillis
    const request = fingerprint(pet)
    const expires = new Date(now + Duration.toMillis(keyLifetime))
    // One statement stores the pet and its idempotency key together or not at all. Of concurrent requests one claims
    // the key; the others wait for it, find it taken, and claim nothing.
    const [created] = yield* sql<{ readonly id: bigint }>`
      WITH claimed AS (
        INSERT INTO idempotency_keys AS known (owner, key, request, pet_id, expires_at)
        VALUES (${owner}, ${key}, ${request}, ${nextId}, ${expires})
        ON CONFLICT (owner, key) DO UPDATE
          SET request = excluded.request, pet_id = excluded.pet_id, expires_at = excluded.expires_at
          WHERE known.expires_at <= ${new Date(now)}
        RETURNING pet_id
      )
      INSERT INTO pets (id, name, category_id, status)
      SELECT pet_id, ${pet.name}, ${pet.categoryId}::bigint, ${pet.status ?? null}::text FROM claimed
      RETURNING id`
    if (created !== undefined) return created.id
    const [known] = yield* sql<{ readonly id: bigint; readonly same: boolean }>`
      SELECT pet_id AS id, request = ${request} AS same
      FROM idempotency_keys WHERE owner = ${owner} AND key = ${key}`
    // The key expired and was deleted between the two statements.
    if (known === undefined) return yield* claim(pet, { key, owner })
    return known.same ? known.id : yield* keyReused
  })

  // Each claim takes a connection. Four at most leave connections for other requests, also when claims wait for each
  // other.
  const places = yield* Semaphore.make(4)
  const addOnce = (pet: NewPet, idempotency: Idempotency) =>
    claim(pet, idempotency).pipe(
      pastTaken,
      places.withPermit,
      Effect.timeout(timeout),
      Effect.catchTags({ SqlError: Effect.die, TimeoutError: Effect.die })
    )

  yield* Expiry.deleteExpired({
    table: "idempotency_keys",
    column: "expires_at",
    warning: "Expired idempotency keys cannot be removed"
  })

  return { list, create, find }
})

const isTaken = (error: SqlError.SqlError | IdempotencyKeyReused): boolean =>
  error._tag === "SqlError" && error.reason._tag === "UniqueViolation"

/**
 * The maximum bytes of a name in a statement of pages. A statement reads up to a hundred pages, which must fit into
 * memory whatever they hold.
 */
const maxNameBytesInPage = 1_024

/** The maximum of pages in one statement. All of it is in memory at once: 3 MB with the longest names that it reads. */
const maxPagesPerStatement = 32

/** The number of long names that are read without `beforeLongNames`. They fit into memory whatever they hold. */
const maxUnannouncedNames = 4

const lowest = -(2n ** 63n)
const highest = 2n ** 63n - 1n

type Row = Omit<Pet, "status"> & { readonly status: PetStatus | null }

/** The pets of one page by column. `page` is the index of its start, from 1. */
interface Page {
  readonly page: number
  readonly ids: ReadonlyArray<bigint>
  /** The names, without those longer than `maxNameBytesInPage`. */
  readonly names: ReadonlyArray<string | null>
  readonly categoryIds: ReadonlyArray<bigint>
  readonly statuses: ReadonlyArray<PetStatus | null>
}

/** Shared texts of the statuses. Each row would otherwise bring a text of its own into the cache. */
const interned = { available: "available", pending: "pending", sold: "sold" } as const

/** An absent status is absent, not null: the field is optional (SPEC §2). */
const fromRow = ({ id, name, categoryId, status }: Row): Pet =>
  status === null ? { id, name, categoryId } : { id, name, categoryId, status: interned[status] }

/** Returns the pets of a page, and only the id of a pet whose name was not read. */
const fromPage = ({ categoryIds, ids, names, statuses }: Page): ReadonlyArray<Pet | bigint> => {
  const pets: Array<Pet | bigint> = []
  for (const [nth, id] of ids.entries()) {
    const name = names[nth], categoryId = categoryIds[nth], status = statuses[nth]
    if (name === undefined || categoryId === undefined || status === undefined) throw new Error("A column is too short")
    pets.push(name === null ? id : fromRow({ id, name, categoryId, status }))
  }
  return pets
}

const isPet = (found: Pet | bigint): found is Pet => typeof found !== "bigint"
