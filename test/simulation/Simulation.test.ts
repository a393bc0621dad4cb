/** Runs the simulation with many seeds. `SEEDS=1000000 npm run simulate` runs more, `SEED=7 npm run simulate` one. */
import { assert, describe, it } from "@effect/vitest"
import { simulate } from "./Simulation.ts"

const { SEED = "1", SEEDS = process.env.SEED === undefined ? "1000" : "1" } = process.env
const [first, count] = [Number(SEED), Number(SEEDS)]

describe("Processes, their servers and a client", () => {
  it("keep their guarantees under any order of events and faults", { timeout: 60_000 + 100 * count }, async () => {
    for (let seed = first; seed < first + count; seed++) {
      const { problems } = await simulate(seed)
      assert.deepStrictEqual(problems, [], `SEED=${seed} npm run simulate`)
    }
  })

  it("repeat the same run for the same seed", async () => {
    assert.deepStrictEqual((await simulate(first)).ends, (await simulate(first)).ends)
  })
})
