import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { EventEmitter } from "node:events"
import type { Socket } from "node:net"
import * as PoolSockets from "../../src/database/PoolSockets.ts"

const maxWaitMs = 3_500
const stepMs = 30

class FakeSocket extends EventEmitter {
  bytesRead = 0
  heardAt: number
  destroyedAt: number | undefined
  constructor(now: number) {
    super()
    this.heardAt = now
  }
  destroy() {
    this.destroyedAt = -1
    queueMicrotask(() => this.emit("close"))
    return this
  }
}

/** A socket mostly receives bytes once it is open. Few statements are lost, so that many sockets are idle for long. */
const step = fc.oneof(
  fc.record({ kind: fc.constant("open" as const), at: fc.constantFrom(0, 1, 1, 1) }),
  fc.record({ kind: fc.constantFrom("hear" as const, "begin" as const, "end" as const), at: fc.nat(3) }),
  fc.record({ kind: fc.constant("close" as const), at: fc.nat(3) }),
  fc.record({ kind: fc.constant("wait" as const), at: fc.constantFrom(30, 300, 900, 2_700, 3_600, 7_800) })
)

const runSteps = Effect.fnUntraced(function*(steps: ReadonlyArray<{ readonly kind: string; readonly at: number }>) {
  let now = 0
  const all: Array<FakeSocket> = []
  const pool = yield* PoolSockets.make(() => {
    const socket = new FakeSocket(now)
    all.push(socket)
    return socket as unknown as Socket
  }, maxWaitMs)
  let closed = new Set<FakeSocket>()
  /** When each statement began, and whether a verdict followed. */
  const statements = new Map<object, number>()
  /** When the driver ends statements that it cancels. They have had their verdict. */
  const cancelling = new Map<object, number>()
  const counts = { verdicts: 0, destroyed: 0 }
  let verdictAt = -Infinity
  let wasSettling = false
  const check = () => {
    const open = all.filter((socket) => !closed.has(socket) && socket.destroyedAt === undefined)
    const destroyed = all.filter(({ destroyedAt }) => destroyedAt === -1)
    // A tick counts from the one before it, so a verdict may come one tick early, and two late.
    const lost = [...statements.values()].filter((at) => now - at >= maxWaitMs - PoolSockets.tickMs)
    const lostForLong = lost.some((at) => now - at > maxWaitMs + 2 * PoolSockets.tickMs)
    for (const socket of destroyed) {
      socket.destroyedAt = now
      if (closed.has(socket)) assert.fail("a closed socket is destroyed")
      if (now - socket.heardAt < maxWaitMs - PoolSockets.tickMs) {
        assert.fail("a socket that received bytes is destroyed")
      }
      if (socket.bytesRead > 0 && lost.length === 0) assert.fail("an idle socket is destroyed without a lost statement")
    }
    for (const { bytesRead, heardAt } of open) {
      if (now - heardAt <= maxWaitMs + 2 * PoolSockets.tickMs) continue
      if (bytesRead === 0) assert.fail("a socket that never received a byte stays open")
      if (lostForLong) assert.fail("a silent socket stays open although a statement is lost")
    }
    if (destroyed.length === 0) return
    if (!pool.isSettling()) assert.fail("statements begin before the connections of destroyed sockets are closed")
    verdictAt = now
    counts.destroyed += destroyed.length
    counts.verdicts++
    if (lost.length === 0) return
    // The driver ends the statements of closed connections, some only after it has waited for their cancellation. One
    // that was lost just now may be lost for the pool in the next tick, so it ends.
    for (const [statement, at] of statements) {
      if (now - at < maxWaitMs - PoolSockets.tickMs) continue
      if (now - at <= maxWaitMs + 3 * PoolSockets.tickMs) pool.end(statement)
      else cancelling.set(statement, now + 8_000)
      statements.delete(statement)
    }
  }
  const checkSettling = Effect.gen(function*() {
    const isSettling = pool.isSettling()
    if (isSettling && now - verdictAt > PoolSockets.tickMs + stepMs) assert.fail("statements wait after the next tick")
    if (isSettling === wasSettling) return
    wasSettling = isSettling
    const waiting = yield* Effect.forkChild(pool.settled)
    yield* Effect.yieldNow
    assert.strictEqual(waiting.pollUnsafe() === undefined, isSettling, "statements wait while the pool settles")
  })
  for (const { at, kind } of steps) {
    const socket = all.filter((each) => !closed.has(each) && each.destroyedAt === undefined)[at]
    if (kind === "open") {
      const opened = pool.open() as unknown as FakeSocket
      if (at === 1) opened.bytesRead++
    } else if (kind === "hear" && socket !== undefined) {
      socket.bytesRead++
      socket.heardAt = now
    } else if (kind === "begin") {
      const statement = {}
      statements.set(statement, now)
      pool.begin(statement)
    } else if (kind === "end") {
      const statement = [...statements.keys()][at]
      if (statement !== undefined) pool.end(statement)
      if (statement !== undefined) statements.delete(statement)
    } else if (kind === "close" && socket !== undefined) {
      closed = closed.add(socket)
      socket.emit("close")
    } else if (kind === "wait") {
      for (let passed = 0; passed < at; passed += stepMs) {
        yield* TestClock.adjust(stepMs)
        now += stepMs
        check()
        yield* checkSettling
        for (const [statement, endsAt] of cancelling) {
          if (endsAt > now) continue
          pool.end(statement)
          cancelling.delete(statement)
        }
      }
    }
  }
  return counts
})

describe("The sockets of the pool", () => {
  it.effect("are destroyed if a statement is lost and they are silent for as long, and no others, in any order", () =>
    Effect.gen(function*() {
      const counts = { verdicts: 0, destroyed: 0 }
      for (const steps of fc.sample(fc.array(step, { minLength: 5, maxLength: 40, size: "max" }), 60)) {
        const { destroyed, verdicts } = yield* Effect.scoped(runSteps(steps))
        counts.destroyed += destroyed
        counts.verdicts += verdicts
      }
      assert.isAbove(counts.verdicts, 10)
      assert.isAbove(counts.destroyed, counts.verdicts)
    }))

  it.effect("stay open if replies are read after a pause of this process", () =>
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      let pausedNs = 0n
      const pausing = Object.assign(Object.create(clock), {
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + pausedNs
      })
      const socket = new FakeSocket(0)
      const pool = yield* Effect.provideService(
        PoolSockets.make(() => socket as unknown as Socket, maxWaitMs),
        Clock.Clock,
        pausing
      )
      pool.open()
      socket.bytesRead++
      yield* TestClock.adjust("1 second")
      const statement = {}
      pool.begin(statement)
      pausedNs = 60_000_000_000n
      // The timers of the pause fire before the reply is read.
      yield* TestClock.adjust(2 * PoolSockets.tickMs)
      pool.end(statement)
      yield* TestClock.adjust("1 minute")
      assert.isUndefined(socket.destroyedAt)
    }))
})
