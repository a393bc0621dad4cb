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

const step = fc.oneof(
  fc.record({ kind: fc.constant("open" as const), at: fc.constant(0) }),
  fc.record({ kind: fc.constantFrom("bytesRead" as const, "bytesWritten" as const), at: fc.nat(9) }),
  fc.record({ kind: fc.constant("wait" as const), at: fc.constantFrom(100, 1_000, 2_900, 3_600, 8_000) })
)

describe("The sockets of the pool", () => {
  it("are destroyed when dead, with all that were silent for as long, and no others, in any order of events", () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] })
    try {
      fc.assert(
        fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
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
              const [first, verdictAt] = [lastTrafficAt, lastTrafficAt + 3_500]
              const isProven = bytesRead === 0 || opens.some((at) => at > first && at < verdictAt)
              assert.isFalse(isProven && Date.now() > verdictAt, "a dead socket stays open")
            }
            for (const { destroyedAt, lastTrafficAt } of sockets) {
              if (destroyedAt === undefined) continue
              assert.isAtLeast(destroyedAt - lastTrafficAt, 3_500, "a socket with traffic was destroyed")
              const longer = alive.filter((other) => other.lastTrafficAt < lastTrafficAt)
              assert.isEmpty(longer, "a socket that was silent for longer stays open")
            }
          }
          for (const { at, kind } of steps) {
            if (kind === "open") open()
            else if (kind === "wait") {
              for (let passed = 0; passed < at; passed += 100) {
                vi.advanceTimersByTime(100)
                check()
              }
            } else sockets[at % Math.max(1, sockets.length)]?.transfer(kind)
          }
          vi.clearAllTimers()
        }),
        { numRuns: 200 }
      )
    } finally {
      vi.useRealTimers()
    }
  })
})
