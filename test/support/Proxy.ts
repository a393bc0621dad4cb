/** A TCP proxy that simulates faults of a network or a server. */
import { Effect } from "effect"
import { once } from "node:events"
import { connect, createServer, type Socket } from "node:net"
import { setTimeout } from "node:timers/promises"
import { freePort } from "./Temporary.ts"

/**
 * Late replies, cut connections, replies that end after a byte, or silence while new connections are refused. A late
 * reply takes longer than `REDIS_TIMEOUT_MS`, and four of them, which a new connection to PostgreSQL and its first
 * statement need, take less than the timeout of a key's lookup.
 */
export type Fault = "slow" | "refusing" | "hanging" | "severed"

/** Forwards connections to the port `target` of this machine for as long as the scope lasts. */
export const run = Effect.fnUntraced(function*(target: number) {
  const port = yield* freePort
  const sockets = new Set<Socket>()
  const state = {
    fault: undefined as Fault | undefined,
    refused: 0,
    forwarded: 0,
    sent: 0,
    cutAt: Infinity,
    muteAt: Infinity
  }
  const muted = new WeakSet<Socket>()
  const closeAll = () => sockets.forEach((socket) => socket.destroy())
  const server = createServer((client) => {
    if (state.fault === "refusing" || state.fault === "severed") {
      state.refused++
      client.destroy()
      return
    }
    state.forwarded++
    const upstream = connect(target, "127.0.0.1")
    let isHung = false
    /** The replies so far, one after another: none overtakes another. */
    let replies = Promise.resolve()
    const reply = async (previous: Promise<void>, bytes: Buffer, delayMs: number) => {
      const dueAt = performance.now() + delayMs
      await previous
      if (delayMs > 0) await setTimeout(Math.max(0, dueAt - performance.now()))
      client.write(bytes)
    }
    const pair = [client, upstream]
    const end = () => pair.forEach((socket) => sockets.delete(socket.destroy()))
    for (const socket of pair) sockets.add(socket.setNoDelay(true).on("error", end).on("close", end))
    client.on("data", (chunk: Buffer) => {
      state.sent++
      if (state.sent === state.muteAt) muted.add(client)
      if (state.sent === state.cutAt) end()
      else upstream.write(chunk)
    })
    upstream.on("data", (chunk: Buffer) => {
      if (isHung || muted.has(client)) return
      isHung = state.fault === "hanging" || state.fault === "severed"
      if (state.fault === "severed") return
      replies = reply(replies, isHung ? chunk.subarray(0, 1) : chunk, state.fault === "slow" ? 300 : 0)
    })
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(port, "127.0.0.1"), "listening")),
    () => Effect.andThen(Effect.sync(closeAll), Effect.sync(() => server.close()))
  )
  return {
    port,
    setFault: (fault: Fault | undefined): void => {
      state.fault = fault
      if (fault === "refusing") closeAll()
    },
    /** Cuts the connection that sends the packet after `sent` others from now on. */
    cutAfter: (sent: number): void => {
      state.cutAt = state.sent + sent + 1
    },
    /** As `cutAfter`, but the connection stays open, and drops all further replies. */
    muteAfter: (sent: number): void => {
      state.muteAt = state.sent + sent + 1
    },
    /** Keeps the open connections open, and drops all further replies on them. New connections work. */
    muteOpen: (): void => sockets.forEach((socket) => void muted.add(socket)),
    sent: (): number => state.sent,
    refused: (): number => state.refused,
    forwarded: (): number => state.forwarded
  }
})
