import { assert, describe, it } from "@effect/vitest"
import type { Decision } from "../../../src/rate-limit/Policy.ts"
import {
  type Batch,
  countCharges,
  decideBatch,
  maxCallsPerBatch,
  TurnBatcher
} from "../../../src/rate-limit/redis/TurnBatcher.ts"

const limits = { perMinute: 2, perDay: 100 }

const setup = () => {
  const sent: Array<Batch> = []
  return { sent, batcher: new TurnBatcher((batch) => sent.push(batch)) }
}

const charge = { isCharge: true, resume: () => {} }
const peek = { isCharge: false, resume: () => {} }

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

describe("TurnBatcher", () => {
  it("sends the calls of a turn at its end, in one batch for each caller", async () => {
    const { batcher, sent } = setup()
    batcher.add("key:a", limits, charge)
    batcher.add("key:b", limits, charge)
    await Promise.resolve()
    batcher.add("key:a", { ...limits }, peek)
    assert.lengthOf(sent, 0)
    await nextTurn()
    assert.deepStrictEqual(sent, [
      { caller: "key:a", limits, calls: [charge, peek] },
      { caller: "key:b", limits, calls: [charge] }
    ])
    batcher.add("key:a", limits, charge)
    await nextTurn()
    assert.deepStrictEqual(sent[2], { caller: "key:a", limits, calls: [charge] })
  })

  it("sends calls under other limits, and those beyond the maximum of a batch, in further batches in order", async () => {
    const { batcher, sent } = setup()
    const lower = { perMinute: 1, perDay: 1 }
    for (let i = 0; i < maxCallsPerBatch + 1; i++) batcher.add("key:a", limits, charge)
    batcher.add("key:a", lower, charge)
    batcher.add("key:a", limits, charge)
    await nextTurn()
    assert.deepStrictEqual(sent.map((batch) => [batch.limits, batch.calls.length]), [
      [limits, maxCallsPerBatch],
      [limits, 1],
      [lower, 1],
      [limits, 1]
    ])
  })

  it("sends the calls so far at once on a flush, and none of them again", async () => {
    const { batcher, sent } = setup()
    batcher.add("key:a", limits, charge)
    batcher.flush()
    batcher.add("key:a", limits, peek)
    assert.deepStrictEqual(sent.map(({ calls }) => calls), [[charge]])
    await nextTurn()
    assert.deepStrictEqual(sent.map(({ calls }) => calls), [[charge], [peek]])
  })
})

describe("decideBatch", () => {
  it("decides on each call after those before it, and charges no peek", () => {
    const batch: Batch = { caller: "key:a", limits, calls: [charge, peek, charge, peek, charge] }
    const { decisions, next } = decideBatch(batch, {}, 0)
    const shown = ({ allowed, windows: [minute] }: Decision) => [allowed, minute.remaining]
    assert.deepStrictEqual(decisions.map(shown), [[true, 1], [true, 1], [true, 0], [false, 0], [false, 0]])
    assert.strictEqual(countCharges(batch), 3)
    assert.deepStrictEqual([next.minute?.used, next.refusals?.used], [2, 1])
  })
})
