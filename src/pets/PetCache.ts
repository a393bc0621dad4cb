/**
 * Caches pets by id for a lifetime, so that a cached pet costs no round trip to the database.
 *
 * The service never changes a pet, so only the changes that an operator makes in SQL are seen late. A page is returned
 * only if it is full and no create in flight can add a pet to it: each id in its range has a cached pet, or is in a gap
 * that is settled (see `SettledIds`).
 */
import type { Pet } from "../api/Pets.ts"
import { evictOldest } from "../collections/evictOldest.ts"
import { type Page, type Selection, toPage } from "./PetRepository.ts"
import { SettledIds } from "./SettledIds.ts"

/** The maximum number of cached pets. They take about 80 MB with names of usual length. */
export const maxPets = 2 ** 19
/** The maximum number of cached gaps, which take 8 MB. */
const maxGaps = 2 ** 16
/** The maximum length of a cached name in characters. It bounds the memory. */
const maxNameLength = 100
/** The maximum number of pets that a page visits. The database finds the pets of a rare status faster. */
const maxVisits = 1_000

/**
 * Each pet has the slot `id % maxPets`, and pets that share a slot replace each other. In arrays, the pets of a page
 * are adjacent. A map instead took a third of the CPU time of a page.
 *
 * Invariant: a slot holds a pet, its id and the start of the statement that read it, or none. All ids are numbers up to
 * 2^53 - 1, because with bigints it takes four times as long to find a page.
 */
export class PetCache {
  readonly #nowMs: () => number
  readonly #lifetimeMs: number
  readonly #pets = Array<Pet | undefined>(maxPets).fill(undefined)
  readonly #ids = new Float64Array(maxPets).fill(NaN)
  readonly #readAt = new Float64Array(maxPets)
  /** The gaps between the ids: the id of the first pet after an id, if that is not the next id. */
  readonly #gaps = new Map<number, { readonly next: number; readonly readAt: number }>()
  /** The cached first pages by limit and status. Their arrays are frozen, so that a text of one can be cached. */
  readonly #firstPages = new Map<string, { readonly page: Page; readonly readAt: number }>()
  readonly settledIds: SettledIds

  /** `nowMs` returns the time of a monotonic clock in milliseconds. */
  constructor(lifetimeMs: number, nowMs: () => number) {
    this.#lifetimeMs = lifetimeMs
    this.#nowMs = nowMs
    this.settledIds = new SettledIds(lifetimeMs, nowMs)
  }

  /**
   * Begins a lookup, and must run before the statement that reads the pets. The returned function caches the pets that
   * the statement found. With `after` they must be all pets from that id to the last of them, in order.
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

  /** Returns the pet with this id if it is cached. */
  get(id: bigint): Pet | undefined {
    return this.#get(Number(id), this.#nowMs() - this.#lifetimeMs)
  }

  /** Returns a page if every pet and gap in its range of ids is cached. */
  page(selection: Selection): Page | undefined {
    const since = this.#nowMs() - this.#lifetimeMs
    if (selection.after !== undefined && selection.after > 0n) return this.#page(selection, since)?.page
    const pageKey = `${selection.limit} ${selection.status}`
    const cached = this.#firstPages.get(pageKey)
    if (cached !== undefined && cached.readAt >= since) return cached.page
    const found = this.#page({ ...selection, after: 0n }, since)
    if (found === undefined) return undefined
    Object.freeze(found.page.pets)
    this.#firstPages.set(pageKey, found)
    return found.page
  }

  #get(id: number, since: number): Pet | undefined {
    const slot = id % maxPets
    return this.#ids[slot] === id && (this.#readAt[slot] ?? 0) >= since ? this.#pets[slot] : undefined
  }

  /** Returns a page, and the start of the earliest of the statements that read it. */
  #page({ after = 0n, limit, status }: Selection, since: number) {
    const pets: Array<Pet> = []
    let readAt = Infinity
    let id = Number(after)
    for (let visits = 0; visits < maxVisits; visits++) {
      let pet = this.#get(++id, since)
      if (pet === undefined) {
        const gap = this.#gaps.get(id - 1)
        if (gap === undefined || gap.readAt < since) return undefined
        id = gap.next
        pet = this.#get(id, since)
        if (pet === undefined) return undefined
        readAt = Math.min(readAt, gap.readAt)
      }
      readAt = Math.min(readAt, this.#readAt[id % maxPets] ?? 0)
      if ((status === undefined || pet.status === status) && pets.push(pet) > limit) {
        return { page: toPage(pets, limit), readAt }
      }
    }
    return undefined
  }
}
