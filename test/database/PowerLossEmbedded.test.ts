import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PowerLoss from "./PowerLoss.ts"

const seeds = Array.from({ length: 4 }, (_, i) => i + 1)

it.live("The embedded database has everything that it acknowledged before a power loss, once", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* PowerLoss.losses(yield* PowerLoss.record(), seeds), [])
  }))
