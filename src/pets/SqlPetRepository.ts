import { Clock, Duration, Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import type { Fragment } from "effect/sql/Statement"
import { type Pet, PetStatus } from "../api/Pets.ts"
import { Settings } from "../config/Settings.ts"
import * as Expiry from "../database/Expiry.ts"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import * as PetCache from "./PetCache.ts"
import { type Arrays, arrays, toPets } from "./PetColumns.ts"
import * as PetInserts from "./PetInserts.ts"
import { PetRepository, toPage } from "./PetRepository.ts"

const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const clock = yield* Clock.Clock
  const lifetime = Duration.seconds(yield* Settings.petCacheSeconds.config)
  const cache = PetCache.make(Duration.toMillis(lifetime), () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6)

  const readPets = (selection: Fragment) =>
    sql<Arrays>`
      SELECT ${sql.literal(arrays)} FROM (SELECT * FROM "pets" WHERE ${selection}) AS "pet" HAVING count(*) > 0`

  const findById = yield* StatementBatcher.read({
    name: "PetRepository.find",
    size: 100,
    run: Effect.fnUntraced(function*(ids: ReadonlyArray<bigint>, isShared) {
      const cachePets = isShared ? cache.beginLookup() : undefined
      const pets = (yield* readPets(sql`id = ANY (${`{${ids.join()}}`}::text::bigint[])`)).flatMap(toPets)
      cachePets?.(pets)
      return new Map(pets.map((pet) => [pet.id, pet]))
    })
  })

  const readPages = (size: string, status: string, afters: ReadonlyArray<string>) => {
    // The status and LIMIT are literals and not parameters: only a literal status matches the index of that status.
    const ofStatus = PetStatus.literals.find((each) => each === status)
    const condition = ofStatus === undefined ? "" : `status = '${ofStatus}' AND`
    return sql<Arrays & { readonly page: number }>`
      SELECT page::int, found.*
      FROM unnest(${`{${afters.join()}}`}::text::bigint[]) WITH ORDINALITY AS asked (after, page)
      CROSS JOIN LATERAL (${readPets(sql.literal(`${condition} id > after ORDER BY id LIMIT ${size}`))}) AS found`
  }

  const findWriters = Effect.map(
    sql<{ readonly id: unknown }>`SELECT virtualtransaction AS id FROM pg_locks
        WHERE relation = '"pets"'::regclass AND mode = 'RowExclusiveLock'`,
    (rows) => new Set(rows.map(({ id }) => id))
  )

  const findPage = yield* StatementBatcher.read({
    name: "PetRepository.list",
    // Bounds memory: 8 pages of 101 pets with 4,000-byte names are 3.2 MB. Two batches run at once.
    size: 8,
    // Page keys are strings of size, status and `after` (`21 sold 100`), so that the batcher merges equal requests.
    run: Effect.fnUntraced(function*(pageKeys: ReadonlyArray<string>, isShared) {
      const check = isShared ? cache.settledIds.beginCheck() : undefined
      if (check !== undefined) check(yield* findWriters)
      const cachePets = isShared ? cache.beginLookup() : undefined
      const found = new Map<string, ReadonlyArray<Pet>>()
      yield* Effect.forEach(
        Map.groupBy(pageKeys, (pageKey) => pageKey.slice(0, pageKey.lastIndexOf(" "))),
        Effect.fnUntraced(function*([prefix, group]) {
          const [size = "", status = ""] = prefix.split(" ")
          const afters = group.map((pageKey) => pageKey.slice(prefix.length + 1))
          for (const row of yield* readPages(size, status, afters)) {
            const [page, index] = [toPets(row), row.page - 1]
            found.set(group[index] ?? "", page)
            cachePets?.(page, status === "" ? BigInt(afters[index] ?? 0) : undefined)
          }
        }),
        { concurrency: "unbounded", discard: true }
      )
      return found
    })
  })

  yield* Expiry.deleteExpired({ table: "idempotency_keys", key: ["owner", "key"], column: "expires_at" })

  return PetRepository.of({
    list: (selection) =>
      Effect.withFiber((fiber) => {
        const { after = 0n, limit, status = "" } = selection
        const cached = StatementBatcher.isInTransaction(sql, fiber) ? undefined : cache.page(selection)
        return cached === undefined
          ? Effect.map(findPage(`${limit + 1} ${status} ${after}`), (found = []) => toPage(found, limit))
          : Effect.succeed(cached)
      }),
    create: yield* PetInserts.make,
    find: (id) =>
      Effect.withFiber((fiber) => {
        const cached = StatementBatcher.isInTransaction(sql, fiber) ? undefined : cache.get(id)
        return cached === undefined ? Effect.map(findById(id), Option.fromUndefinedOr) : Effect.succeedSome(cached)
      })
  })
})

export const layer = Layer.effect(PetRepository, make)
