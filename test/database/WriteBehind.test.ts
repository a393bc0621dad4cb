import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

it.effect("A write-behind buffer keeps and combines all values of a flush of which the second write fails", () =>
  Effect.gen(function*() {
    const stored = new Map<number, number>()
    let writes = 0
    const buffer = yield* WriteBehind.make<number, number>({
      interval: "1 second",
      table: "counts",
      warning: "The counts cannot be stored",
      combine: (older, newer) => older + newer,
      write: (values): Effect.Effect<void, string> => {
        if (++writes === 2) return Effect.andThen(Effect.sync(() => buffer.set(2_499, 1)), Effect.fail("no"))
        return Effect.sync(() => values.forEach((value, key) => stored.set(key, (stored.get(key) ?? 0) + value)))
      }
    })
    for (let key = 0; key < 2_500; key++) buffer.set(key, 1)
    yield* TestClock.adjust("2 seconds")
    assert.isAbove(writes, 2)
    assert.deepStrictEqual([...stored.values()], [...Array<number>(2_499).fill(1), 2])
  }))
