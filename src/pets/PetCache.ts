/**
 * Caches pets by id, so that a cached pet costs no round trip to the database.
 *
 * The service never changes a pet. An operator can change pets in SQL. The table `pets_changes` records such a change,
 * and the change poller then invalidates the cache.
 */
import { Duration, Effect, Latch } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet, PetStatus } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import type { Selection } from "./PetStore.ts"

/** The maximum number of cached pets. They take about 80 MB with names of usual length. */
const maxCachedPets = 2 ** 19
/** The maximum length of a cached name in characters. It bounds the memory of the cache. */
const maxNameLength = 100

// A client that walks through the list gets its next pages read ahead: at most this number of pages and of pets.
const maxPagesPerRead = 5
const maxPetsPerRead = 101

/** The maximum number of ids that the cache checks for a page. The database finds the pets of a rare status faster. */
const maxIdsChecked = 1_000

/** The interval between reads of the lowest id while lists need it. The service changes it once, with the first pet. */
const lowestIdInterval = Duration.millis(250)

/** Makes the cache of this process, which lasts until its scope closes. */
export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const poller = yield* ChangePoller
  // A pet has the slot `id % maxCachedPets`. Pets that share a slot evict each other. In an array, the pets of a page
  // are adjacent. A map instead took a third of the CPU time of an uncached page.
  const petsBySlot = Array<Pet | undefined>(maxCachedPets).fill(undefined)
  // The id of the pet in each slot, `NaN` in an empty slot. Ids are numbers, because with bigints it takes four times
  // as long to find a page.
  const idsBySlot = new Float64Array(maxCachedPets).fill(NaN)
  const cachedPet = (id: number): Pet | undefined =>
    idsBySlot[id % maxCachedPets] === id ? petsBySlot[id % maxCachedPets] : undefined
  /** The cached first pages, by limit and status. Each call for a page returns the same array. */
  const firstPages = new Map<string, ReadonlyArray<Pet>>()
  /** The number of invalidations. The result of a lookup that began before an invalidation is not cached. */
  let generation = 0
  /** The lowest id of all pets: `null` if there are no pets, `undefined` while it is unknown. */
  let lowestId: bigint | null | undefined
  const lowestIdRequested = yield* Latch.make()

  yield* poller.subscribe(({ everything, pets }) => {
    if (!everything && !pets) return
    generation++
    petsBySlot.fill(undefined)
    idsBySlot.fill(NaN)
    firstPages.clear()
    lowestId = undefined
  })

  // The lowest id has a statement of its own, so that a lock on the table delays no other statement. An error is
  // not logged here, because the database then also fails the list that needs the id, and that error is logged.
  const readLowestId = Effect.gen(function*() {
    yield* lowestIdRequested.await
    lowestIdRequested.closeUnsafe()
    const generationAtStart = generation
    const [row] = yield* sql<{ readonly id: bigint | null }>`SELECT min(id) AS id FROM pets`
    if (generation === generationAtStart) lowestId = row?.id
  }).pipe(
    Effect.withTracerEnabled(false),
    Effect.ignoreCause,
    Effect.andThen(Effect.sleep(lowestIdInterval))
  )
  yield* Effect.forkScoped(Effect.forever(readLowestId))

  /** Returns the first `limit` pets from the id `start` on, or `undefined` unless every id of their range is cached. */
  const collectPage = (start: number, limit: number, status: PetStatus | undefined): ReadonlyArray<Pet> | undefined => {
    // Usually no pet of an uncached page is cached, so one check rejects it.
    if (cachedPet(start + limit - 1) === undefined) return undefined
    const page: Array<Pet> = []
    for (let id = start; id < start + maxIdsChecked; id++) {
      const pet = cachedPet(id)
      if (pet === undefined) return undefined
      if ((status === undefined || pet.status === status) && page.push(pet) === limit) return page
    }
    return undefined
  }

  return {
    /** Returns the cached pet with this id, at most one second stale. */
    get: (id: bigint): Pet | undefined => poller.isFresh() ? cachedPet(Number(id)) : undefined,

    /**
     * Returns a full page, at most one second stale, or `undefined` if it is not cached. A page is cached only if every
     * id of its range is, so that no other pet can lie within the range.
     */
    page: ({ after, limit, status }: Selection): ReadonlyArray<Pet> | undefined => {
      if (!poller.isFresh()) return undefined
      if (after !== undefined) return collectPage(Number(after + 1n), limit, status)
      // The ids of the service start at 1, so that no create in flight can get an id below a lowest id of 1 or less. If
      // an operator inserts a pet below 1, a trigger records the change.
      if (lowestId === undefined || lowestId === null || lowestId > 1n) {
        lowestIdRequested.openUnsafe()
        return undefined
      }
      const pageKey = `${limit} ${status}`
      let page = firstPages.get(pageKey)
      if (page === undefined) {
        page = collectPage(Number(lowestId), limit, status)
        if (page !== undefined) firstPages.set(pageKey, page)
      }
      return page
    },

    /**
     * Returns the number of pets to read for an uncached page. It includes the next pages if the previous page is
     * cached without a gap, because then a client probably walks through the list.
     */
    sizeOf: ({ after, limit, status }: Selection): number =>
      status === undefined && after !== undefined &&
        collectPage(Number(after) - limit + 2, limit - 1, status) !== undefined
        ? Math.max(limit, Math.min(maxPagesPerRead * (limit - 1) + 1, maxPetsPerRead))
        : limit,

    /**
     * Begins a lookup, and must run before the statement that reads the pets. The returned function takes the result of
     * the lookup. It evicts the missing ids, and caches the found pets unless an invalidation happened meanwhile.
     */
    beginLookup: () => {
      const generationAtStart = generation
      return (found: Iterable<Pet>, missing: Iterable<bigint> = []): void => {
        for (const id of missing) {
          const slot = Number(id) % maxCachedPets
          if (idsBySlot[slot] !== Number(id)) continue
          petsBySlot[slot] = undefined
          idsBySlot[slot] = NaN
          firstPages.clear()
        }
        if (generation !== generationAtStart) return
        for (const pet of found) {
          const id = Number(pet.id)
          // From 2^53 on, one number represents several ids. Negative ids have no slot.
          if (id < 0 || !Number.isSafeInteger(id) || pet.name.length > maxNameLength) continue
          petsBySlot[id % maxCachedPets] = pet
          idsBySlot[id % maxCachedPets] = id
        }
      }
    }
  }
})
