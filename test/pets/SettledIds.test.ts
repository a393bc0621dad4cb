/** Tests that no cached page hides a pet of another process, however long its transaction takes. */
import { assert, describe, it } from "@effect/vitest"
import type { Pet } from "../../src/api/Pets.ts"
import { PetCache } from "../../src/pets/PetCache.ts"

describe("Cached pages", () => {
  it("contain each pet that was visible before, in any interleaving of transactions, reads and lock checks", () => {
    let seed = 1
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    let nowMs = 0
    let newest = 0
    let served = 0
    const cache = new PetCache(100_000, () => nowMs)
    /** The transactions that hold the lock, and the ids that each took. */
    const writers = new Map<number, Array<number>>()
    const visible = new Set<number>()
    /** Statements in flight: each has read, and its result arrives later. */
    const results: Array<() => void> = []
    const petsAfter = (after: number): ReadonlyArray<Pet> =>
      [...visible].filter((id) => id > after).toSorted((a, b) => a - b).slice(0, 5)
        .map((id) => ({ id: BigInt(id), name: "Rex", categoryId: 1n }))
    const writer = () => [...writers.keys()][random(writers.size)] ?? 0
    for (let step = 0; step < 100_000; step++) {
      nowMs += random(400)
      const action = random(20)
      if (action < 1 && writers.size < 5) writers.set(step, [])
      else if (action < 2) writers.get(writer())?.push(++newest)
      else if (action < 4) {
        const ended = writer()
        if (random(3) > 0) { for (const id of writers.get(ended) ?? []) visible.add(id) }
        writers.delete(ended)
      } else if (action < 6) {
        const check = cache.settledIds.beginCheck()
        if (check !== undefined) {
          const holders = new Set(writers.keys())
          results.push(() => check(holders))
        }
      } else if (action < 9) {
        const after = Math.max(0, newest - random(20))
        const cachePets = cache.beginLookup()
        const found = petsAfter(after)
        results.push(() => cachePets(found, BigInt(after)))
      } else if (action < 15) results.splice(random(results.length), 1).forEach((deliver) => deliver())
      else {
        const after = Math.max(0, newest - random(30))
        const page = cache.page({ limit: 4, after: BigInt(after) })
        if (page !== undefined) served++
        const ids = page?.pets.map(({ id }) => id)
        assert.deepStrictEqual(ids, page && petsAfter(after).slice(0, 4).map(({ id }) => id))
      }
      visible.delete(newest - 100)
    }
    assert.isAbove(served, 100)
  })
})
