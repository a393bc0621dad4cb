import type { Pet } from "../api/Pets.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import { type Page, type Selection, toPage } from "./PetRepository.ts"
import { SettledIds } from "./SettledIds.ts"

/** About 80 MB of memory, if the names have a typical length. */
export const maxPets = 2 ** 19
/** About 8 MB. */
const maxGaps = 2 ** 16
const maxCachedNameLength = 100
/** A page lookup stops at this many cached pets and reads the database, whose index finds a rare status faster. */
const maxVisits = 1_000

/**
 * Caches pets and gaps (ranges of ids without a pet). A cached pet, or a full page of cached pets, needs no SQL. The
 * service never changes a pet. A change made in SQL becomes visible within `lifetimeMs` (`PET_CACHE_SECONDS`).
 *
 * Each pet is stored at index `id % maxPets` and replaces the previous pet at this index. Cached ids are numbers,
 * which are faster than bigints, so pets with ids over 2^53 - 1 are not cached.
 */
export class PetCache {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  readonly #pets = Array<Pet | undefined>(maxPets).fill(undefined)
  readonly #ids = new Float64Array(maxPets).fill(NaN)
  /** `#readAt[i]` is the time, in milliseconds, at which the SQL statement that read `#pets[i]` started. */
  readonly #readAt = new Float64Array(maxPets)
  /** Maps the id before a gap to `next`, the id after the gap. The statement that found the gap started at `readAt`. */
  readonly #gaps = new Map<number, { readonly next: number; readonly readAt: number }>()
  readonly settledIds: SettledIds

  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
    this.settledIds = new SettledIds(lifetimeMs, nowMs)
  }

  /**
   * Call before a statement that reads pets, then pass the pets to the returned function, which caches them. For an
   * unfiltered page, also pass the page's `after`: the function then caches the gaps between the pets, too.
   */
  beginLookup(): (found: Iterable<Pet>, after?: bigint) => void {
    const readAt = this.#nowMs()
    const settledId = this.settledIds.current()
    return (found, after) => {
      if (this.#lifetimeMs === 0) return
      let previous = after === undefined ? NaN : Math.max(Number(after), 0)
      for (const pet of found) {
        const id = Number(pet.id)
        if (!Number.isSafeInteger(id)) return
        if (id > previous + 1) {
          if (id <= settledId) this.#gaps.set(previous, { next: id, readAt })
          else this.settledIds.noteGap(id, readAt)
        }
        if (after !== undefined) previous = id
        if (pet.name.length > maxCachedNameLength) continue
        this.#pets[id % maxPets] = pet
        this.#ids[id % maxPets] = id
        this.#readAt[id % maxPets] = readAt
      }
      evictOldest(this.#gaps, maxGaps)
    }
  }

  get(id: bigint): Pet | undefined {
    return this.#get(Number(id), this.#nowMs() - this.#lifetimeMs)
  }

  page({ after = 0n, limit, status }: Selection): Page | undefined {
    const since = this.#nowMs() - this.#lifetimeMs
    const pets: Array<Pet> = []
    let id = Math.max(Number(after), 0)
    for (let visits = 0; visits < maxVisits; visits++) {
      const pet = this.#get(id + 1, since) ?? this.#afterGap(id, since)
      if (pet === undefined) return undefined
      id = Number(pet.id)
      if ((status === undefined || pet.status === status) && pets.push(pet) > limit) return toPage(pets, limit)
    }
    return undefined
  }

  #get(id: number, since: number): Pet | undefined {
    const slot = id % maxPets
    return this.#ids[slot] === id && (this.#readAt[slot] ?? 0) >= since ? this.#pets[slot] : undefined
  }

  #afterGap(id: number, since: number): Pet | undefined {
    const gap = this.#gaps.get(id)
    return gap !== undefined && gap.readAt >= since ? this.#get(gap.next, since) : undefined
  }
}
