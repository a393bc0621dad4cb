/**
 * Caches pets by id, so that a cached pet costs no round trip to the database.
 *
 * The service never changes a pet. An operator can change pets in SQL. The table `pets_changes` records such a change,
 * and the change poller then invalidates the cache.
 */
import { Duration, Effect, Latch } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import type { Selection } from "./PetStore.ts"
import { PetTable } from "./PetTable.ts"

// A client that walks through the list gets its next pages read ahead: at most this number of pages and of pets.
const maxPagesPerRead = 5
const maxPetsPerRead = 101

/** The interval between reads of the lowest id while lists need it. The service changes it once, with the first pet. */
const lowestIdInterval = Duration.millis(250)

/** Makes the cache of this process, which lasts until its scope closes. */
export const make = Effect.gen(function*() {
  const poller = yield* ChangePoller
  const cache = new PetCache(poller.isFresh)
  yield* poller.subscribe(({ everything, pets }) => {
    if (everything || pets) cache.invalidate()
  })
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(readLowestId(cache), Effect.sleep(lowestIdInterval))))
  return cache
})

/**
 * Reads the lowest id when a list needs it. It has a statement of its own, so that a lock on the table delays no other
 * statement. An error is not logged, because the database then also fails the list, and that error is logged.
 */
const readLowestId = (cache: PetCache) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const setLowestId = yield* cache.lowestIdRequest
    const [row] = yield* sql<{ readonly id: bigint | null }>`SELECT min(id) AS id FROM pets`
    setLowestId(row?.id ?? undefined)
  }).pipe(Effect.withTracerEnabled(false), Effect.ignoreCause)

/**
 * The cached pets and first pages.
 *
 * Invariant: nothing that was read before an invalidation is cached after it.
 */
export class PetCache {
  readonly #isFresh: () => boolean
  readonly #pets = new PetTable()
  /** The cached first pages, by limit and status. Each call for a page returns the same array. */
  readonly #firstPages = new Map<string, ReadonlyArray<Pet>>()
  /** The number of invalidations. */
  #generation = 0
  /** The lowest id of all pets: `undefined` while it is unknown, and if there are no pets. */
  #lowestId: bigint | undefined
  readonly #lowestIdRequested = Latch.makeUnsafe()

  /** `isFresh` tells whether invalidations arrive in time. While they do not, nothing is returned. */
  constructor(isFresh: () => boolean) {
    this.#isFresh = isFresh
  }

  /** Evicts everything. */
  invalidate(): void {
    this.#generation++
    this.#pets.clear()
    this.#firstPages.clear()
    this.#lowestId = undefined
  }

  /** Returns the cached pet with this id, at most one second stale. */
  get(id: bigint): Pet | undefined {
    return this.#isFresh() ? this.#pets.get(Number(id)) : undefined
  }

  /** Returns a full page, at most one second stale, or `undefined` if not every pet in its range of ids is cached. */
  page({ after, limit, status }: Selection): ReadonlyArray<Pet> | undefined {
    if (!this.#isFresh()) return undefined
    if (after !== undefined) return this.#pets.page(Number(after + 1n), limit, status)
    // The ids of the service start at 1. So no create in flight can get an id below a lowest id of 1 or less. If
    // an operator inserts a pet below 1, a trigger records the change.
    if (this.#lowestId === undefined || this.#lowestId > 1n) {
      this.#lowestIdRequested.openUnsafe()
      return undefined
    }
    const pageKey = `${limit} ${status}`
    let page = this.#firstPages.get(pageKey)
    if (page === undefined) {
      page = this.#pets.page(Number(this.#lowestId), limit, status)
      if (page !== undefined) this.#firstPages.set(pageKey, page)
    }
    return page
  }

  /**
   * Returns the number of pets to read for an uncached page. It includes the next pages if all pets of the previous
   * page are cached, because then a client probably walks through the list.
   */
  sizeOf({ after, limit, status }: Selection): number {
    return status === undefined && after !== undefined &&
        this.#pets.page(Number(after) - limit + 2, limit - 1, status) !== undefined
      ? Math.max(limit, Math.min(maxPagesPerRead * (limit - 1) + 1, maxPetsPerRead))
      : limit
  }

  /**
   * Begins a lookup, and must run before the statement that reads the pets. The returned function takes the result of
   * the lookup. It evicts the missing ids, and caches the found pets unless an invalidation happened meanwhile.
   */
  beginLookup(): (found: Iterable<Pet>, missing?: Iterable<bigint>) => void {
    const generationAtStart = this.#generation
    return (found, missing = []) => {
      for (const id of missing) if (this.#pets.delete(Number(id))) this.#firstPages.clear()
      if (this.#generation !== generationAtStart) return
      for (const pet of found) this.#pets.set(pet)
    }
  }

  /** Waits until a list needs the lowest id. The returned function takes the id that was read from then on. */
  readonly lowestIdRequest: Effect.Effect<(id: bigint | undefined) => void> = Effect.suspend(() =>
    Effect.map(this.#lowestIdRequested.await, () => {
      this.#lowestIdRequested.closeUnsafe()
      const generationAtStart = this.#generation
      return (id) => {
        if (this.#generation === generationAtStart) this.#lowestId = id
      }
    })
  )
}
