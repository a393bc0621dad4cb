/**
 * Animals by id, remembered: one that is asked for again costs no round trip to the database. The service never changes
 * an animal; an operator may, in SQL, and `pets_changes` tells of it.
 */
import { Duration, Effect, Latch } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet, PetStatus } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import type { Selection } from "./PetStore.ts"

/** Animals that are kept at most: some 80 MB with names of usual length. */
const mostKept = 2 ** 19
/** Animals with longer names are not kept: a bound on characters, and so on memory. */
const longestName = 100

/** Pages that are looked up at once for a walk, and animals at most. */
const pagesAhead = 5
const readAhead = 101

/** Ids that are looked at for a page: of a rare status it is the database that finds it sooner. */
const longestWalk = 1_000

/** How often the lowest id is read while lists need it: it changes once, with the first pet. */
const lowestIdInterval = Duration.millis(250)

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const poller = yield* ChangePoller
  // The place of an id is `id % mostKept`; ids that far apart share it, and the last one remembered has it. An array,
  // not a map: animals of one page lie side by side, while a map took a third of the CPU of a page that was not known.
  const slots = Array<Pet | undefined>(mostKept).fill(undefined)
  // The ids of those that are there, as numbers: a page is found in a quarter of the time that its bigints take.
  const ids = new Float64Array(mostKept).fill(NaN)
  const petOf = (id: number): Pet | undefined => ids[id % mostKept] === id ? slots[id % mostKept] : undefined
  /** The first pages of `page`, by the rest of what was asked for: the same each time. */
  const firstPages = new Map<string, ReadonlyArray<Pet>>()
  /** The number of invalidations, so that a lookup that began before one is not cached. */
  let generation = 0
  /** The lowest id of all pets; `null` if there are none, `undefined` if it is unknown. */
  let lowestId: bigint | null | undefined
  const lowestIdRequested = yield* Latch.make()

  yield* poller.subscribe(({ everything, pets }) => {
    if (!everything && !pets) return
    generation++
    slots.fill(undefined)
    ids.fill(NaN)
    firstPages.clear()
    lowestId = undefined
  })

  // By itself, so that a lock on the table holds up nothing else. If it fails, so does the list that wants to know, and
  // that is logged.
  const readLowestId = Effect.gen(function*() {
    yield* lowestIdRequested.await
    lowestIdRequested.closeUnsafe()
    const before = generation
    const [row] = yield* sql<{ readonly id: bigint | null }>`SELECT min(id) AS id FROM pets`
    if (generation === before) lowestId = row?.id
  }).pipe(
    Effect.withTracerEnabled(false),
    Effect.ignoreCause,
    Effect.andThen(Effect.sleep(lowestIdInterval))
  )
  yield* Effect.forkScoped(Effect.forever(readLowestId))

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
    get: (id: bigint): Pet | undefined => poller.isFresh() ? petOf(Number(id)) : undefined,

    /**
     * A full page, as of a second ago at most, where every id that it spans is that of a known animal: no other can
     * come between them.
     */
    page: ({ after, limit, status }: Selection): ReadonlyArray<Pet> | undefined => {
      if (!poller.isFresh()) return undefined
      if (after !== undefined) return walk(Number(after + 1n), limit, status)
      // The service's ids start at 1, so no create in flight can come before a lowest id of 1 or less. A trigger tells
      // of a pet that an operator inserts below 1.
      if (lowestId === undefined || lowestId === null || lowestId > 1n) {
        lowestIdRequested.openUnsafe()
        return undefined
      }
      const name = `${limit} ${status}`
      let page = firstPages.get(name)
      if (page === undefined) {
        page = walk(Number(lowestId), limit, status)
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

    /**
     * Before pets are looked up: the function that caches those that were found, unless something changed meanwhile. It
     * evicts those that were looked up, and are not there.
     */
    remembering: () => {
      const before = generation
      return (found: Iterable<Pet>, missing: Iterable<bigint> = []): void => {
        for (const id of missing) {
          const place = Number(id) % mostKept
          if (ids[place] !== Number(id)) continue
          slots[place] = undefined
          ids[place] = NaN
          firstPages.clear()
        }
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
