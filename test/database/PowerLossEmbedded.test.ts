import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PowerLoss from "./PowerLoss.ts"

// Seed 3 alone shows each of the faults that the long suite injects.
const seeds = [3, 4]

it.live("The embedded database has everything that it acknowledged before a power loss, once", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* PowerLoss.losses(yield* PowerLoss.record(), seeds), [])
  }))
