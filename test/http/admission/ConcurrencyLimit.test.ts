import { assert, describe, it } from "@effect/vitest"
import { afterEach, beforeEach, vi } from "vitest"
import { ConcurrencyLimit } from "../../../src/http/admission/ConcurrencyLimit.ts"

const maxInFlight = 2_500
const maxQueued = 10_000

describe("ConcurrencyLimit", () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })
  const turn = () => vi.advanceTimersToNextTimer()

  /**
   * Makes a limit, at which `first` requests have arrived. `started` and `rejected` hold the numbers of the requests, in
   * the order of their start or rejection. Started requests stay in flight until `leave`.
   */
  const make = (first: number) => {
    const limit = new ConcurrencyLimit({ maxInFlight, maxQueued })
    const started: Array<number> = []
    const rejected: Array<number> = []
    let next = 0
    const arrive = (count: number) => {
      for (let i = 0; i < count; i++) {
        const number = next++
        limit.startOrQueue(() => {
          if (limit.isFull) {
            rejected.push(number)
          } else {
            limit.enter()
            started.push(number)
          }
        })
      }
    }
    const leave = (count: number) => {
      for (let i = 0; i < count; i++) limit.leave()
    }
    arrive(first)
    return { limit, started, rejected, arrive, leave }
  }
  const upTo = (end: number, from = 0) => Array.from({ length: end - from }, (_, index) => from + index)

  it("starts requests at once while slots are free, and queued requests in the order of arrival, once each", () => {
    const { started, arrive, leave, rejected, limit } = make(maxInFlight + 300)
    assert.deepStrictEqual(started, upTo(maxInFlight))
    leave(50)
    // The free slots belong to the queued requests.
    arrive(10)
    assert.lengthOf(started, maxInFlight)
    turn()
    assert.deepStrictEqual(started, upTo(maxInFlight + 50))
    assert.strictEqual(limit.inFlight, maxInFlight)
    leave(1)
    turn()
    leave(maxInFlight)
    for (let i = 0; i < 3; i++) turn()
    assert.deepStrictEqual(started, upTo(maxInFlight + 310))
    assert.strictEqual(vi.getTimerCount(), 0)
    vi.advanceTimersByTime(10_000)
    assert.deepStrictEqual(started, upTo(maxInFlight + 310))
    assert.deepStrictEqual(rejected, [])
    assert.strictEqual(limit.inFlight, 259)
    arrive(1)
    assert.lengthOf(started, maxInFlight + 311)
  })

  it("rejects a request that has queued for one second", () => {
    const { started, arrive, leave, rejected } = make(maxInFlight + 2)
    vi.advanceTimersByTime(900)
    arrive(1)
    leave(1)
    vi.advanceTimersByTime(90)
    assert.deepStrictEqual([started.length, rejected], [maxInFlight + 1, []])
    vi.advanceTimersByTime(20)
    assert.deepStrictEqual(rejected, [maxInFlight + 1])
    vi.advanceTimersByTime(800)
    assert.deepStrictEqual(rejected, [maxInFlight + 1])
    vi.advanceTimersByTime(100)
    assert.deepStrictEqual(rejected, [maxInFlight + 1, maxInFlight + 2])
  })

  it("rejects a request at once while 10,000 are queued, and keeps their order", () => {
    const { started, arrive, leave, rejected } = make(maxInFlight + maxQueued)
    leave(20)
    arrive(10)
    assert.deepStrictEqual(rejected, upTo(maxInFlight + maxQueued + 10, maxInFlight + maxQueued))
    turn()
    assert.deepStrictEqual(started, upTo(maxInFlight + 20))
  })

  it("starts or rejects at most a hundred queued requests in a turn of the event loop", () => {
    const { started, leave, rejected } = make(maxInFlight + 300)
    leave(150)
    turn()
    assert.lengthOf(started, maxInFlight + 100)
    turn()
    assert.lengthOf(started, maxInFlight + 150)
    vi.advanceTimersByTime(999)
    // The timeouts of all requests fire in this millisecond. The event loop's turns come after them.
    vi.advanceTimersByTime(1)
    assert.isBelow(rejected.length, 101)
    turn()
    turn()
    assert.deepStrictEqual(rejected, upTo(maxInFlight + 300, maxInFlight + 150))
  })
})
