/** Tests the table of pets in memory against a list of all pets. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { Pet, PetStatus } from "../../src/api/Pets.ts"
import { maxPets, PetTable } from "../../src/pets/PetTable.ts"

const pet = (id: bigint, status?: PetStatus): Pet => ({
  id,
  name: `pet ${id}`,
  categoryId: 1n,
  ...status && { status }
})

describe("The table of pets", () => {
  it("returns a page only if it holds every id up to the last pet of the page", () => {
    const status = fc.constantFrom<PetStatus>("available", "pending", "sold")
    const stored = fc.uniqueArray(fc.record({ id: fc.integer({ min: 1, max: 40 }), status }), {
      selector: ({ id }) => id
    })
    const table = new PetTable()
    const property = fc.property(
      stored,
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 1, max: 5 }),
      fc.option(status, { nil: undefined }),
      (pets, start, limit, wanted) => {
        table.clear()
        for (const item of pets) table.set(pet(BigInt(item.id), item.status))
        const expected: Array<bigint> = []
        for (let id = start; expected.length < limit; id++) {
          const found = pets.find((candidate) => candidate.id === id)
          if (found === undefined) break
          if (wanted === undefined || found.status === wanted) expected.push(BigInt(id))
        }
        const page = table.page(start, limit, wanted)?.map(({ id }) => id)
        // With a status, the table may give up on a page that it holds.
        return page === undefined
          ? wanted !== undefined || expected.length < limit
          : page.join() === expected.join()
      }
    )
    assert.isFalse(fc.check(property).failed)
  })

  it("replaces a pet by one with the same slot, and never returns one for the other", () => {
    const table = new PetTable()
    const [first, second] = [pet(7n), pet(7n + BigInt(maxPets))]
    table.set(first)
    table.set(second)
    assert.isUndefined(table.get(7))
    assert.strictEqual(table.get(7 + maxPets), second)
    assert.isFalse(table.delete(7))
    assert.isTrue(table.delete(7 + maxPets))
    assert.isUndefined(table.get(7 + maxPets))
  })

  it("holds no pet with a negative id, an id from 2^53 on, or a name of more than 100 characters", () => {
    const table = new PetTable()
    for (const id of [-1n, 2n ** 53n, 2n ** 63n - 1n]) {
      table.set(pet(id))
      assert.isUndefined(table.get(Number(id)))
    }
    table.set({ ...pet(1n), name: "n".repeat(101) })
    assert.isUndefined(table.get(1))
    table.set({ ...pet(1n), name: "n".repeat(100) })
    assert.isDefined(table.get(1))
  })
})
