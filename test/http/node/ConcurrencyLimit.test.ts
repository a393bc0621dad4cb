import { assert, describe, it } from "@effect/vitest"
import { afterEach, beforeEach, vi } from "vitest"
import { ConcurrencyLimit } from "../../../src/http/node/ConcurrencyLimit.ts"

const most = 2_500
const mostWaiting = 10_000

describe("Requests under way", () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })
  const turn = () => vi.advanceTimersToNextTimer()

  /** Requests that go on until they are told to leave, or find no room; by number, in the order in which that was. */
  const make = (first: number) => {
    const requests = new ConcurrencyLimit({ maxInFlight: most, maxQueued: mostWaiting })
    const begun: Array<number> = []
    const refused: Array<number> = []
    let nth = 0
    const come = (times: number) => {
      for (let i = 0; i < times; i++) {
        const number = nth++
        requests.whenRoom(() => {
          if (requests.isFull) {
            refused.push(number)
          } else {
            requests.enter()
            begun.push(number)
          }
        })
      }
    }
    const leave = (times: number) => {
      for (let i = 0; i < times; i++) requests.leave()
    }
    come(first)
    return { requests, begun, refused, come, leave }
  }
  const upTo = (end: number, from = 0) => Array.from({ length: end - from }, (_, nth) => from + nth)

  it("begin at once where there is room, and beyond in the order in which they came, once each", () => {
    const { begun, come, leave, refused, requests } = make(most + 300)
    assert.deepStrictEqual(begun, upTo(most))
    leave(50)
    // The places are theirs who wait.
    come(10)
    assert.lengthOf(begun, most)
    turn()
    assert.deepStrictEqual(begun, upTo(most + 50))
    assert.strictEqual(requests.inFlight, most)
    leave(1)
    turn()
    leave(most)
    for (let i = 0; i < 3; i++) turn()
    assert.deepStrictEqual(begun, upTo(most + 310))
    assert.strictEqual(vi.getTimerCount(), 0)
    vi.advanceTimersByTime(10_000)
    assert.deepStrictEqual(begun, upTo(most + 310))
    assert.deepStrictEqual(refused, [])
    assert.strictEqual(requests.inFlight, 259)
    come(1)
    assert.lengthOf(begun, most + 311)
  })

  it("wait for a second", () => {
    const { begun, come, leave, refused } = make(most + 2)
    vi.advanceTimersByTime(900)
    come(1)
    leave(1)
    vi.advanceTimersByTime(90)
    assert.deepStrictEqual([begun.length, refused], [most + 1, []])
    vi.advanceTimersByTime(20)
    assert.deepStrictEqual(refused, [most + 1])
    vi.advanceTimersByTime(800)
    assert.deepStrictEqual(refused, [most + 1])
    vi.advanceTimersByTime(100)
    assert.deepStrictEqual(refused, [most + 1, most + 2])
  })

  it("are refused at once where 10,000 wait, who are not overtaken", () => {
    const { begun, come, leave, refused } = make(most + mostWaiting)
    leave(20)
    come(10)
    assert.deepStrictEqual(refused, upTo(most + mostWaiting + 10, most + mostWaiting))
    turn()
    assert.deepStrictEqual(begun, upTo(most + 20))
  })

  it("begin a hundred a turn of the event loop, the late ones too", () => {
    const { begun, leave, refused } = make(most + 300)
    leave(150)
    turn()
    assert.lengthOf(begun, most + 100)
    turn()
    assert.lengthOf(begun, most + 150)
    vi.advanceTimersByTime(999)
    // All of them are late in this moment, and their turn comes behind them.
    vi.advanceTimersByTime(1)
    assert.isBelow(refused.length, 101)
    turn()
    turn()
    assert.deepStrictEqual(refused, upTo(most + 300, most + 150))
  })
})
