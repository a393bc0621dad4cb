import type { Pet } from "../api/Pets.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import { type Page, type Selection, toPage } from "./PetRepository.ts"
import * as SettledIds from "./SettledIds.ts"

/** This many pets with names of typical length use about 80 MB of memory. */
export const maxPets = 2 ** 19
/** About 8 MB. */
const maxGaps = 2 ** 16
const maxCachedNameLength = 100
/** A page lookup visits at most this many cached pets. For a rare status, the database's index is faster. */
const maxVisits = 1_000

/**
 * Caches pets and gaps (ranges of ids without a pet). A cached pet, or a full page of cached pets, needs no SQL. The
 * service never changes a pet. A change made in SQL becomes visible within `lifetimeMs` (`PET_CACHE_SECONDS`).
 *
 * Each pet is stored at index `id % maxPets` and replaces the previous pet at this index. Cached ids are numbers,
 * which are faster than bigints, so pets with ids over 2^53 - 1 are not cached.
 */
export const make = (lifetimeMs: number, nowMs: () => number) => {
  const pets = Array<Pet | undefined>(maxPets).fill(undefined)
  const ids = new Float64Array(maxPets).fill(NaN)
  const readTimes = new Float64Array(maxPets)
  /** Maps the id before each gap to the id after it (`next`). The query that found the gap started at `readAt`. */
  const gaps = new Map<number, { readonly next: number; readonly readAt: number }>()
  const settledIds = SettledIds.make(lifetimeMs, nowMs)

  const find = (id: number, since: number): Pet | undefined => {
    const slot = id % maxPets
    return ids[slot] === id && (readTimes[slot] ?? 0) >= since ? pets[slot] : undefined
  }
  const findAfterGap = (id: number, since: number): Pet | undefined => {
    const gap = gaps.get(id)
    return gap !== undefined && gap.readAt >= since ? find(gap.next, since) : undefined
  }

  return {
    settledIds,
    /**
     * Call before a statement that reads pets, then pass the pets to the returned function, which caches them. For an
     * unfiltered page, also pass the page's `after`: the function then caches the gaps between the pets, too.
     */
    beginLookup(): (found: Iterable<Pet>, after?: bigint) => void {
      const readAt = nowMs()
      const settledId = settledIds.current()
      return (found, after) => {
        if (lifetimeMs === 0) return
        let previous = after === undefined ? NaN : Math.max(Number(after), 0)
        for (const pet of found) {
          const id = Number(pet.id)
          if (!Number.isSafeInteger(id)) return
          if (id > previous + 1) {
            if (id <= settledId) gaps.set(previous, { next: id, readAt })
            else settledIds.noteGap(id, readAt)
          }
          if (after !== undefined) previous = id
          if (pet.name.length > maxCachedNameLength) continue
          pets[id % maxPets] = pet
          ids[id % maxPets] = id
          readTimes[id % maxPets] = readAt
        }
        evictOldest(gaps, maxGaps)
      }
    },
    get: (id: bigint): Pet | undefined => find(Number(id), nowMs() - lifetimeMs),
    page({ after = 0n, limit, status }: Selection): Page | undefined {
      const since = nowMs() - lifetimeMs
      const found: Array<Pet> = []
      let id = Math.max(Number(after), 0)
      for (let visits = 0; visits < maxVisits; visits++) {
        const pet = find(id + 1, since) ?? findAfterGap(id, since)
        if (pet === undefined) return undefined
        id = Number(pet.id)
        if ((status === undefined || pet.status === status) && found.push(pet) > limit) return toPage(found, limit)
      }
      return undefined
    }
  }
}
