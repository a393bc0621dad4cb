/**
 * Caches pets by id, so that a cached pet costs no round trip to the database. The service never changes a pet. An
 * operator can, in SQL, and the table `pets_changes` records it.
 */
import { Duration, Effect, Latch } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet, PetStatus } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import type { Selection } from "./PetStore.ts"

/** The maximum of cached pets: some 80 MB with names of usual length. */
const maxCachedPets = 2 ** 19
/** The maximum length of a cached name in characters, which bounds the memory of the cache. */
const maxNameLength = 100

/** The maximum of pages that are read ahead for a walk, and of pets in them. */
const pagesAhead = 5
const readAhead = 101

/** The maximum of ids that are checked for a page. The database finds the pets of a rare status faster. */
const maxIdsChecked = 1_000

/** The interval at which the lowest id is read while lists need it. It changes once, with the first pet. */
const lowestIdInterval = Duration.millis(250)

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const poller = yield* ChangePoller
  // A pet has the slot `id % maxCachedPets`. Ids that share a slot replace each other. The pets of a page lie side by
  // side in an array, while a map took a third of the CPU of an uncached page.
  const slots = Array<Pet | undefined>(maxCachedPets).fill(undefined)
  // The ids of the cached pets as numbers: with bigints, finding a page takes four times as long.
  const ids = new Float64Array(maxCachedPets).fill(NaN)
  const petOf = (id: number): Pet | undefined => ids[id % maxCachedPets] === id ? slots[id % maxCachedPets] : undefined
  /** First pages of `page` by the rest of the selection. The same array is returned each time. */
  const firstPages = new Map<string, ReadonlyArray<Pet>>()
  /** The number of invalidations. A lookup that began before an invalidation is not cached. */
  let generation = 0
  /** The lowest id of all pets, `null` if there are no pets, `undefined` if it is unknown. */
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

  // A separate statement, so that a lock on the table delays nothing else. A failure also fails the list that needs the
  // id, which is logged.
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

  /** Returns the first `limit` pets from an id on, if every id of their range is cached. */
  const walk = (start: number, limit: number, status: PetStatus | undefined): ReadonlyArray<Pet> | undefined => {
    // Most often all of an uncached page is missing.
    if (petOf(start + limit - 1) === undefined) return undefined
    const page: Array<Pet> = []
    for (let id = start; id < start + maxIdsChecked; id++) {
      const pet = petOf(id)
      if (pet === undefined) return undefined
      if ((status === undefined || pet.status === status) && page.push(pet) === limit) return page
    }
    return undefined
  }

  return {
    /** Returns a cached pet, at most one second old. */
    get: (id: bigint): Pet | undefined => poller.isFresh() ? petOf(Number(id)) : undefined,

    /**
     * Returns a full page, at most one second old, if every id of its range is cached: no other pet can be between
     * them.
     */
    page: ({ after, limit, status }: Selection): ReadonlyArray<Pet> | undefined => {
      if (!poller.isFresh()) return undefined
      if (after !== undefined) return walk(Number(after + 1n), limit, status)
      // The service's ids start at 1, so that no create in flight can precede a lowest id of 1 or less. A trigger
      // reports pets that an operator inserts below 1.
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
     * Returns how many pets to read for an uncached page. It includes the next pages if the page before is cached
     * without a gap, as in a walk.
     */
    sizeOf: ({ after, limit, status }: Selection): number =>
      status === undefined && after !== undefined && walk(Number(after) - limit + 2, limit - 1, status) !== undefined
        ? Math.max(limit, Math.min(pagesAhead * (limit - 1) + 1, readAhead))
        : limit,

    /**
     * Must run before pets are read. Returns the function that caches the found pets, unless an invalidation happened
     * meanwhile, and evicts the pets that were not found.
     */
    beginLookup: () => {
      const before = generation
      return (found: Iterable<Pet>, missing: Iterable<bigint> = []): void => {
        for (const id of missing) {
          const place = Number(id) % maxCachedPets
          if (ids[place] !== Number(id)) continue
          slots[place] = undefined
          ids[place] = NaN
          firstPages.clear()
        }
        if (generation !== before) return
        for (const pet of found) {
          const id = Number(pet.id)
          // From 2^53 on a number stands for several ids, and negative ids have no slot.
          if (id < 0 || !Number.isSafeInteger(id) || pet.name.length > maxNameLength) continue
          slots[id % maxCachedPets] = pet
          ids[id % maxCachedPets] = id
        }
      }
    }
  }
})
