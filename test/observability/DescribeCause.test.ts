import { assert, it } from "@effect/vitest"
import { Cause } from "effect"
import { describeCause } from "../../src/observability/DescribeCause.ts"

it("A failure is described by its message and causes in one line, or without a message by its text", () => {
  class Lost extends Error {
    override readonly name = "Lost"
  }
  const failures: ReadonlyArray<readonly [failure: unknown, text: string]> = [
    [new Error("outer", { cause: new Error("in\nner") }), "outer: in ner"],
    [new Lost(), "Lost"],
    ["a text", "a text"]
  ]
  for (const [failure, text] of failures) assert.strictEqual(describeCause(Cause.fail(failure)), text)
})
