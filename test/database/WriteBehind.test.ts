import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

it.effect("A write-behind buffer keeps the values of a flush whose second write fails, and combines them with newer ones", () =>
  Effect.gen(function*() {
    const stored = new Map<number, string>()
    let writes = 0
    const buffer = yield* WriteBehind.make<number, string>({
      interval: "1 second",
      table: "counts",
      combine: (older, newer) => older + newer,
      write: (values): Effect.Effect<void, string> => {
        if (++writes === 2) return Effect.andThen(Effect.sync(() => buffer.set(2_499, "b")), Effect.fail("no"))
        return Effect.sync(() => values.forEach((value, key) => stored.set(key, (stored.get(key) ?? "") + value)))
      }
    })
    for (let key = 0; key < 2_500; key++) buffer.set(key, "a")
    yield* TestClock.adjust("2 seconds")
    assert.isAbove(writes, 2)
    assert.deepStrictEqual([...stored.values()], [...Array<string>(2_499).fill("a"), "ab"])
  }))

it.effect("A write-behind buffer keeps its values if the function that writes them throws", () =>
  Effect.gen(function*() {
    const stored: Array<string> = []
    let isBroken = true
    const buffer = yield* WriteBehind.make<string, string>({
      interval: "1 second",
      table: "counts",
      write: (values) => {
        if (isBroken) throw new Error("broken")
        return Effect.sync(() => void stored.push(...values.values()))
      }
    })
    buffer.set("a", "first")
    yield* TestClock.adjust("1 second")
    isBroken = false
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(stored, ["first"])
  }))
