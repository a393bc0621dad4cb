/** Tests the collection of short-lived items. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { FreeList } from "../../src/collections/FreeList.ts"

describe("FreeList", () => {
  it("holds the same items as a Set, and uses only as many slots as the most items that it held at once", () => {
    fc.assert(fc.property(fc.array(fc.nat()), (choices) => {
      const freeList = new FreeList<{ readonly index: number }>()
      const model = new Map<number, { readonly index: number }>()
      let maxSize = 0
      for (const [index, choice] of choices.entries()) {
        const [slot] = [...model.keys()].slice(choice % (2 * model.size + 1))
        if (slot === undefined) {
          const item = { index }
          const taken = freeList.add(item)
          assert.isFalse(model.has(taken))
          model.set(taken, item)
          maxSize = Math.max(maxSize, model.size)
          assert.isBelow(taken, maxSize)
        } else {
          freeList.remove(slot)
          model.delete(slot)
        }
        assert.sameMembers([...freeList], [...model.values()])
      }
    }))
  })

  it("allows every item to be removed during iteration", () => {
    const freeList = new FreeList<{ readonly slot: number }>()
    for (let slot = 0; slot < 3; slot++) freeList.add({ slot })
    const seen: Array<number> = []
    for (const { slot } of freeList) {
      seen.push(slot)
      freeList.remove(slot)
    }
    assert.deepStrictEqual([seen, [...freeList]], [[0, 1, 2], []])
  })
})
