import { assert, describe, it, vi } from "@effect/vitest"
import * as fc from "fast-check"
import { EventEmitter } from "node:events"
import type { Socket } from "node:net"
import * as PoolSockets from "../../src/database/PoolSockets.ts"

/** A socket with Node's idle timer. */
class FakeSocket extends EventEmitter {
  bytesRead = 0
  bytesWritten = 0
  destroyedAt: number | undefined
  lastTrafficAt = Date.now()
  #timer: NodeJS.Timeout | undefined
  #ms = 0
  setTimeout(ms: number, callback?: () => void) {
    if (callback !== undefined) this.once("timeout", callback)
    this.#ms = ms
    return this.#restart()
  }
  #restart() {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.emit("timeout"), this.#ms)
    return this
  }
  transfer(direction: "bytesRead" | "bytesWritten"): void {
    if (this.destroyedAt !== undefined) return
    this[direction]++
    this.lastTrafficAt = Date.now()
    this.#restart()
  }
  destroy() {
    this.destroyedAt = Date.now()
    clearTimeout(this.#timer)
    this.emit("close")
    return this
  }
}

/** A socket mostly receives bytes once it is open. */
const step = fc.oneof(
  fc.record({ kind: fc.constant("open" as const), at: fc.constantFrom(0, 1, 1, 1) }),
  fc.record({ kind: fc.constantFrom("bytesRead" as const, "bytesWritten" as const), at: fc.nat(3) }),
  fc.record({ kind: fc.constant("wait" as const), at: fc.constantFrom(300, 900, 2_700, 3_600, 7_800) })
)

describe("The sockets of the pool", () => {
  it("are destroyed when dead, with all that were silent for as long, and no others, in any order of events", () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] })
    let destroyed = 0
    try {
      fc.assert(
        fc.property(fc.array(step, { minLength: 5, maxLength: 40, size: "max" }), (steps) => {
          const sockets: Array<FakeSocket> = []
          const opens: Array<number> = []
          const open = PoolSockets.watch(() => {
            const socket = new FakeSocket()
            sockets.push(socket)
            opens.push(Date.now())
            return socket as unknown as Socket
          }, Date.now)
          const check = () => {
            const alive = sockets.filter(({ destroyedAt }) => destroyedAt === undefined)
            for (const { bytesRead, lastTrafficAt } of alive) {
              const isProven = bytesRead === 0 || opens.some((at) => at > lastTrafficAt && Date.now() - at > 3_500)
              if (isProven && Date.now() - lastTrafficAt > 3_500) assert.fail("a dead socket stays open")
            }
            for (const { destroyedAt, lastTrafficAt } of sockets) {
              if (destroyedAt === undefined) continue
              if (destroyedAt - lastTrafficAt < 3_500) assert.fail("a socket with traffic was destroyed")
              const hasOlder = alive.some((other) => other.lastTrafficAt < lastTrafficAt)
              if (hasOlder) assert.fail("a socket that was silent for longer stays open")
            }
          }
          for (const { at, kind } of steps) {
            if (kind === "open") {
              open()
              if (at === 1) sockets.at(-1)?.transfer("bytesRead")
            } else if (kind === "wait") {
              for (let passed = 0; passed < at; passed += 300) {
                vi.advanceTimersByTime(300)
                check()
              }
            } else sockets[at % Math.max(1, sockets.length)]?.transfer(kind)
          }
          destroyed += sockets.filter(({ destroyedAt }) => destroyedAt !== undefined).length
          vi.clearAllTimers()
        }),
        { numRuns: 500 }
      )
    } finally {
      vi.useRealTimers()
    }
    assert.isAbove(destroyed, 0)
  })
})
