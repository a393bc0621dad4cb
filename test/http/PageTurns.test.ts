import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import * as fc from "fast-check"
import { CurrentKey } from "../../src/api/OperationMiddleware.ts"
import { listPage } from "../../src/http/CollectionHandlers.ts"
import * as PageTurns from "../../src/http/PageTurns.ts"

interface List {
  readonly key: string
  fiber?: Fiber.Fiber<void>
}

const keyNamed = (id: string) => ({ id, plan: "free" as const, limits: { perMinute: 60, perDay: 1_000 } })

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ key: fc.constantFrom("a", "b", "c"), costMs: fc.constantFrom(0, 1, 4, 25) }) },
  { weight: 1, arbitrary: fc.record({ interrupt: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.constant("turn" as const) }
)

it("Pages keep the laws of their turns, whatever lists arrive, wait and are interrupted", () => {
  fc.assert(fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    let clock = 0
    let nextTurn = Option.none<() => void>()
    const turns = PageTurns.make(() => clock, (run) => void (nextTurn = Option.some(run)))
    let waiting: ReadonlyArray<List> = []
    let made: Array<List> = []
    let costMs = 0
    let hasTime = true
    const start = (key: string, ownCostMs: number) => {
      const hadTime = costMs < PageTurns.turnMs
      const list: List = { key }
      const page = Effect.sync(() => {
        hasTime &&= costMs < PageTurns.turnMs
        costMs += ownCostMs
        clock += ownCostMs
        made.push(list)
      })
      list.fiber = Effect.runFork(Effect.provideService(Effect.andThen(turns, page), CurrentKey, keyNamed(key)))
      // Law 1: it waits only if the turn has no time.
      assert.strictEqual(made.includes(list), hadTime)
      if (!hadTime) waiting = [...waiting, list]
    }
    const turn = () => {
      const [before, run] = [waiting, nextTurn]
      nextTurn = Option.none()
      made = []
      costMs = 0
      if (Option.isSome(run)) run.value()
      waiting = before.filter((list) => !made.includes(list))
      // Law 1: each list went on only while the turn had time.
      assert.isTrue(hasTime)
      // Law 2
      assert.isTrue(before.length === 0 || made.length > 0)
      assert.isTrue(waiting.length === 0 || costMs >= PageTurns.turnMs)
      for (const key of ["a", "b", "c"]) {
        // Law 3: the lists of a key are made in their order, and no key gets two more than one that still waits.
        const ofKey = made.filter((list) => list.key === key)
        assert.deepStrictEqual(ofKey, before.filter((list) => list.key === key).slice(0, ofKey.length))
        if (!waiting.some((list) => list.key === key)) continue
        for (const other of ["a", "b", "c"]) {
          assert.isAtMost(made.filter((list) => list.key === other).length, ofKey.length + 1)
        }
      }
    }
    for (const each of steps) {
      if (each === "turn") turn()
      else if ("key" in each) start(each.key, each.costMs)
      else {
        const list = waiting[each.interrupt % waiting.length]
        waiting = waiting.filter((other) => other !== list)
        if (list?.fiber !== undefined) Effect.runFork(Fiber.interrupt(list.fiber))
      }
    }
    for (let turns = waiting.length; turns > 0; turns--) turn()
    assert.lengthOf(waiting, 0)
  }))
})

it.effect("A list makes its page in a turn that has time for it", () =>
  Effect.gen(function*() {
    let turns = 0
    const turn = Effect.sync(() => void turns++)
    const store = { list: () => Effect.succeed({ items: [] }) }
    yield* listPage(store, {}, {}).pipe(
      Effect.provideService(PageTurns.PageTurns, turn),
      Effect.provideService(CurrentKey, keyNamed("a"))
    )
    assert.strictEqual(turns, 1)
  }))
