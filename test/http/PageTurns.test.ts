import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { CurrentKey } from "../../src/api/OperationMiddleware.ts"
import { listPage } from "../../src/http/CollectionHandlers.ts"
import * as PageTurns from "../../src/http/PageTurns.ts"

interface List {
  readonly key: string
  fiber?: Fiber.Fiber<unknown, unknown>
}

const keyNamed = (id: string) => ({ id, plan: "free" as const, limits: { perMinute: 60, perDay: 1_000 } })

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ key: fc.constantFrom("a", "b", "c"), costMs: fc.constantFrom(0, 1, 4, 25) }) },
  { weight: 1, arbitrary: fc.record({ otherWorkMs: fc.constantFrom(1, 4, 25) }) },
  { weight: 1, arbitrary: fc.record({ interrupt: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.constant("turn" as const) }
)

it("Pages keep the laws of their turns, whatever lists arrive, wait and are interrupted", () => {
  fc.assert(fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    let clock = 0
    let nextTurn = Option.none<() => void>()
    const turns = PageTurns.make((run) => void (nextTurn = Option.some(run)), () => clock)
    let waiting: ReadonlyArray<List> = []
    let made: Array<List> = []
    /** How long the turn has lasted since its first list. */
    let turnFrom = Option.none<number>()
    const hasTurnTime = () => Option.getOrElse(turnFrom, () => clock) + PageTurns.turnMs > clock
    let hasTime = true
    const start = (key: string, ownCostMs: number) => {
      const hadTime = hasTurnTime() && waiting.length === 0
      turnFrom = Option.orElse(turnFrom, () => Option.some(clock))
      const list: List = { key }
      const page = Effect.sync(() => {
        turnFrom = Option.orElse(turnFrom, () => Option.some(clock))
        hasTime &&= hasTurnTime()
        clock += ownCostMs
        made.push(list)
      })
      list.fiber = Effect.runFork(Effect.provideService(Effect.andThen(turns(clock), page), CurrentKey, keyNamed(key)))
      // Law 1: it waits only if the turn has no time.
      assert.strictEqual(made.includes(list), hadTime)
      if (!hadTime) waiting = [...waiting, list]
    }
    const turn = () => {
      const [before, run] = [waiting, nextTurn]
      nextTurn = Option.none()
      made = []
      turnFrom = Option.none()
      if (Option.isSome(run)) run.value()
      waiting = before.filter((list) => !made.includes(list))
      // Law 1: each list went on only while the turn had time.
      assert.isTrue(hasTime)
      // Law 2
      assert.isTrue(before.length === 0 || made.length > 0)
      assert.isTrue(waiting.length === 0 || !hasTurnTime())
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
      else if ("otherWorkMs" in each) clock += each.otherWorkMs
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
    const waitForTurn = () => Effect.sync(() => void turns++)
    const store = { list: () => Effect.succeed({ items: [] }) }
    yield* listPage(store, {}, {}).pipe(
      Effect.provideService(PageTurns.PageTurns, waitForTurn),
      Effect.provideService(CurrentKey, keyNamed("a"))
    )
    assert.strictEqual(turns, 1)
  }))

it("A list goes on, at whatever operation its fiber yields to others", async () => {
  // A fiber yields after 2,048 operations.
  for (let operations = 950; operations < 1_050; operations++) {
    let now = 0
    const waitForTurn = PageTurns.make(setImmediate, () => now)
    const list = Effect.provideService(waitForTurn(0), CurrentKey, keyNamed("a"))
    Effect.runFork(list)
    now = PageTurns.turnMs
    const fiber = Effect.runFork(Effect.gen(function*() {
      for (let done = 0; done < operations; done++) yield* Effect.suspend(() => Effect.void)
      yield* list
    }))
    for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve))
    assert.isDefined(fiber.pollUnsafe(), `after ${operations} operations`)
  }
})

it.effect("A list fails as overloaded once its operation has taken three seconds", () =>
  Effect.gen(function*() {
    let now = 0
    // No turn ends.
    const waitForTurn = PageTurns.make(() => {}, () => now)
    const list = Effect.provideService(waitForTurn(0), CurrentKey, keyNamed("a"))
    yield* list
    now = 2_000
    const fiber = yield* Effect.forkChild(Effect.flip(list), { startImmediately: true })
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(fiber.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.strictEqual((yield* Fiber.join(fiber))._tag, "ServiceUnavailable")
  }))
