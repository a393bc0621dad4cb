import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PowerLoss from "./PowerLoss.ts"

const cuts = Number(process.env.CUTS ?? 300)

it.live(
  "The embedded database has everything that it acknowledged before CUTS power losses, once",
  () =>
    Effect.gen(function*() {
      const seeds = Array.from({ length: cuts }, (_, i) => 1_000 + i)
      assert.deepStrictEqual(yield* PowerLoss.losses(yield* PowerLoss.record(), seeds), [])
    }),
  60_000 + cuts * 10_000
)

it.live.each(["all", "cluster", "directories", "late", "wal"] as const)(
  "A power loss shows which syncs a database leaves out, or waits for too late: %s",
  (broken) =>
    Effect.gen(function*() {
      const changes = yield* PowerLoss.record(broken)
      let [seed, found] = [0, ""]
      while (seed < 40 && found === "") [found = ""] = yield* PowerLoss.losses(changes, [++seed])
      assert.notStrictEqual(found, "", "no seed shows it")
    }),
  300_000
)
