/**
 * Animals by id, remembered: one that is asked for again costs no round trip to the database. The service never changes
 * an animal; an operator may, in SQL, and `pets_changes` tells of it.
 */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet, PetStatus } from "../api/Pets.ts"
import * as Expiry from "../database/Expiry.ts"
import * as Freshness from "../database/Freshness.ts"
import type { Selection } from "../PetRepository.ts"

/** Animals that are kept at most: some 80 MB with names of usual length. */
const mostKept = 2 ** 19
/** Animals with longer names are not kept: a bound on characters, and so on memory. */
const longestName = 100

/** Pages that are looked up at once for a walk, and animals at most. */
const pagesAhead = 5
const readAhead = 101

/** Ids that are looked at for a page: of a rare status it is the database that finds it sooner. */
const longestWalk = 1_000

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // The place of an id is `id % mostKept`; ids that far apart share it, and the last one remembered has it. An array,
  // not a map: animals of one page lie side by side, while a map took a third of the CPU of a page that was not known.
  const slots = Array<Pet | undefined>(mostKept).fill(undefined)
  // The ids of those that are there, as numbers: a page is found in a quarter of the time that its bigints take.
  const ids = new Float64Array(mostKept).fill(NaN)
  const petOf = (id: number): Pet | undefined => ids[id % mostKept] === id ? slots[id % mostKept] : undefined
  /** The first pages of `page`, by the rest of what was asked for: the same each time. */
  const firstPages = new Map<string, ReadonlyArray<Pet>>()
  let generation = 0
  /**
   * The table and its files, and the server that they belong to, since a backup may have replaced either, and the hour,
   * since a process that did not poll for that long may have missed changes removed since.
   */
  let version: string | undefined
  /**
   * The first transaction that may have been open at the last poll: a decimal, as all of them. At first the highest
   * there is: nothing is remembered yet, so that no change matters.
   */
  let mark = String(2n ** 64n - 1n)
  /** The changes that it told: they are told again for as long as an older transaction is open. */
  let told: ReadonlySet<string> = new Set()
  /** The lowest id of all. */
  let first: bigint | null = null
  /** Polls may overtake each other: what a former one says after a later one counts no more. */
  let begun = 0
  let heard = 0

  // Ids of transactions are handed out at their start: below the snapshot's xmin every one has ended. Ids from its xmax
  // on are those of another server, brought by a restored dump.
  const poll = Effect.gen(function*() {
    const nth = ++begun
    const [row] = yield* sql<{
      readonly version: string
      readonly first: bigint | null
      readonly mark: string
      readonly changes: ReadonlyArray<string>
    }>`
      SELECT
        concat_ws(
          ' ',
          date_trunc('hour', now()),
          pg_postmaster_start_time(),
          'pets'::regclass::oid,
          pg_relation_filenode('pets')
        ) AS version,
        (SELECT min(id) FROM pets) AS first,
        pg_snapshot_xmin(s.now)::text AS mark,
        ARRAY(
          SELECT transaction::text FROM pets_changes
          WHERE transaction >= ${mark}::text::xid8 AND transaction < pg_snapshot_xmax(s.now)
        ) AS changes
      FROM (SELECT pg_current_snapshot() AS now) s`
    if (nth < heard || row === undefined) return
    heard = nth
    const isChanged = row.version !== version || row.changes.some((change) => !told.has(change))
    version = row.version
    mark = row.mark
    told = new Set(row.changes)
    if (row.first !== first) firstPages.clear()
    first = row.first
    if (!isChanged) return
    generation++
    slots.fill(undefined)
    ids.fill(NaN)
    firstPages.clear()
  })
  const isFresh = yield* Freshness.make(poll, "Changes of pets cannot be read")

  yield* Expiry.sweep({
    table: "pets_changes",
    column: "ends_at",
    warning: "Changes of pets cannot be removed"
  })

  /** The first `limit` animals from an id on, where every id that they span is that of a known one. */
  const walk = (start: number, limit: number, status: PetStatus | undefined): ReadonlyArray<Pet> | undefined => {
    // What is missing is mostly all of it.
    if (petOf(start + limit - 1) === undefined) return undefined
    const page: Array<Pet> = []
    for (let id = start; id < start + longestWalk; id++) {
      const pet = petOf(id)
      if (pet === undefined) return undefined
      if ((status === undefined || pet.status === status) && page.push(pet) === limit) return page
    }
    return undefined
  }

  return {
    /** The animal, as of a second ago at most. */
    get: (id: bigint): Pet | undefined => isFresh() ? petOf(Number(id)) : undefined,

    /**
     * A full page, as of a second ago at most, where every id that it spans is that of a known animal: no other can
     * come between them.
     */
    page: ({ after, limit, status }: Selection): ReadonlyArray<Pet> | undefined => {
      if (!isFresh()) return undefined
      if (after !== undefined) return walk(Number(after + 1n), limit, status)
      // The service's ids start at 1, so no addition under way can come before a first id of 1 or less. Animals that an
      // operator adds below it are found by the next poll.
      if (first === null || first > 1n) return undefined
      const name = `${limit} ${status}`
      let page = firstPages.get(name)
      if (page === undefined) {
        page = walk(Number(first), limit, status)
        if (page !== undefined) firstPages.set(name, page)
      }
      return page
    },

    /**
     * How many animals to look up for a page that is not known: also those of the next ones, where the one before it is
     * known without a gap, as in a walk.
     */
    sizeOf: ({ after, limit, status }: Selection): number =>
      status === undefined && after !== undefined && walk(Number(after) - limit + 2, limit - 1, status) !== undefined
        ? Math.max(limit, Math.min(pagesAhead * (limit - 1) + 1, readAhead))
        : limit,

    /** Before animals are looked up: what remembers those that were found, unless something changed meanwhile. */
    remembering: () => {
      const before = generation
      return (found: Iterable<Pet>): void => {
        if (generation !== before) return
        for (const pet of found) {
          const id = Number(pet.id)
          // From 2^53 on a number stands for several ids, and below 0 there is no place.
          if (id < 0 || !Number.isSafeInteger(id) || pet.name.length > longestName) continue
          slots[id % mostKept] = pet
          ids[id % mostKept] = id
        }
      }
    }
  }
})
