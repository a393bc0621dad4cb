import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as WriteBehind from "../../src/database/WriteBehind.ts"

it.effect("A write-behind buffer keeps values whose write fails or throws, and combines them with newer ones", () =>
  Effect.gen(function*() {
    const stored = new Map<number, string>()
    let writes = 0
    const buffer = yield* WriteBehind.make<number, string>({
      interval: "1 second",
      table: "counts",
      combine: (older, newer) => older + newer,
      write: (values): Effect.Effect<void, string> => {
        if (++writes === 2) return Effect.andThen(Effect.sync(() => buffer.set(2_499, "b")), Effect.fail("no"))
        if (writes === 4) throw new Error("broken")
        return Effect.sync(() => values.forEach((value, key) => stored.set(key, (stored.get(key) ?? "") + value)))
      }
    })
    for (let key = 0; key < 2_500; key++) buffer.set(key, "a")
    yield* TestClock.adjust("3 seconds")
    assert.strictEqual(writes, 5)
    assert.deepStrictEqual([...stored.values()], [...Array<string>(2_499).fill("a"), "ab"])
  }))
