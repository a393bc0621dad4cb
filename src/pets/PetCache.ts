/**
 * Caches pets by id, and the gaps between their ids.
 *
 * The service never changes a pet, so only changes in SQL are seen late, by at most the lifetime. A page is cached if
 * it is full, and each id in its range has a cached pet or is in a settled gap (`SettledIds`).
 */
import type { Pet } from "../api/Pets.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import { type Page, type Selection, toPage } from "./PetRepository.ts"
import { SettledIds } from "./SettledIds.ts"

/** About 80 MB with names of usual length. */
export const maxPets = 2 ** 19
/** About 8 MB. */
const maxGaps = 2 ** 16
/** Longer names are not cached, which bounds the memory. */
const maxNameLength = 100
/** The maximum number of pets that a lookup of a page visits. Beyond it, the database's index on status is faster. */
const maxVisits = 1_000

/**
 * A direct-mapped cache: a pet has the slot `id % maxPets`, and replaces any other pet there. Measured against a map:
 * docs/performance.md. Ids are numbers, four times as fast as bigints; pets with ids over 2^53 - 1 are not cached.
 */
export class PetCache {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  readonly #pets = Array<Pet | undefined>(maxPets).fill(undefined)
  readonly #ids = new Float64Array(maxPets).fill(NaN)
  /** When the statement that read the pet started. */
  readonly #readAt = new Float64Array(maxPets)
  /** The next pet after an id, if that is not the next id. */
  readonly #gaps = new Map<number, { readonly next: number; readonly readAt: number }>()
  readonly settledIds: SettledIds

  /** `nowMs` returns the time of a monotonic clock in milliseconds. */
  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
    this.settledIds = new SettledIds(lifetimeMs, nowMs)
  }

  /**
   * Call it before a statement that reads pets, and the returned function with the pets. With `after`, they must be all
   * pets from that id to the last of them, in order: the ids between them are gaps.
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
        if (pet.name.length > maxNameLength) continue
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
