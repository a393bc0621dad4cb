import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { FreeList } from "../../src/collections/FreeList.ts"

describe("A bag", () => {
  it("has what a Set would have, in as many places as were ever taken at once", () => {
    fc.assert(fc.property(fc.array(fc.nat()), (choices) => {
      const bag = new FreeList<{ readonly nth: number }>()
      const model = new Map<number, { readonly nth: number }>()
      let most = 0
      for (const [nth, choice] of choices.entries()) {
        const [place] = [...model.keys()].slice(choice % (2 * model.size + 1))
        if (place === undefined) {
          const thing = { nth }
          const taken = bag.add(thing)
          assert.isFalse(model.has(taken))
          model.set(taken, thing)
          most = Math.max(most, model.size)
          assert.isBelow(taken, most)
        } else {
          bag.remove(place)
          model.delete(place)
        }
        assert.sameMembers([...bag], [...model.values()])
      }
    }))
  })

  it("may be emptied by who looks through it", () => {
    const bag = new FreeList<{ readonly place: number }>()
    for (let place = 0; place < 3; place++) bag.add({ place })
    const seen: Array<number> = []
    for (const { place } of bag) {
      seen.push(place)
      bag.remove(place)
    }
    assert.deepStrictEqual([seen, [...bag]], [[0, 1, 2], []])
  })
})
