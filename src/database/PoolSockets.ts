/**
 * Watches the sockets of the pool, because the driver has no read timeout.
 *
 * Laws, for any order of opens, statements, bytes, silence and closes:
 * 1. A statement is lost if its reply has not ended `maxWaitMs` after the statement was sent. Replies of a live server
 *    usually end earlier, because of `statement_timeout` or because the caller's deadline cancels the statement.
 * 2. A lost statement destroys each socket that has received no byte for `maxWaitMs`, at most two ticks later. So if
 *    all connections of a pool die together, the first lost statement also destroys those that were silent as long.
 * 3. A socket that has received a byte is not destroyed while no statement is lost, however long it is idle, and
 *    whatever the driver opens or cancels meanwhile.
 * 4. A socket that has received no byte for `maxWaitMs` after it was opened is destroyed. This file destroys no other
 *    sockets than those of laws 2 and 4.
 * 5. `isSettling` returns true from the destruction of sockets until the next tick, because until then the driver may
 *    lend their connections.
 * 6. A pause of this process counts as at most two ticks, so replies that arrived during the pause are read first.
 *    Waits that begin just before its end can be up to one tick shorter than `maxWaitMs`.
 */
import { Clock, Effect, Latch } from "effect"
import type { Socket } from "node:net"

export const tickMs = 100

interface Watched {
  bytesRead: number
  /** `elapsedMs` when a tick last found new bytes from the socket, or else when the socket was opened. */
  heardAtMs: number
}

export interface Statements {
  /** Registers a statement that is about to be sent. */
  begin(statement: object): void
  /** Stops watching a statement, because its reply has ended, it was cancelled, or its connection is closed. */
  end(statement: object): void
  isSettling(): boolean
  /** Waits until `isSettling` is false. */
  readonly settled: Effect.Effect<void>
}

/** For a pool whose sockets are not watched. */
export const unwatched: Statements = { begin() {}, end() {}, isSettling: () => false, settled: Effect.void }

/** Watches the sockets that `open` opens. */
export const make = Effect.fnUntraced(function*(open: () => Socket, maxWaitMs: number) {
  const clock = yield* Clock.Clock
  const sockets = new Map<Socket, Watched>()
  const statements = new Map<object, number>()
  const hasSockets = yield* Latch.make()
  const settled = yield* Latch.make(true)
  let isSettling = false
  let elapsedMs = 0

  const isOver = (sinceMs: number): boolean => elapsedMs - sinceMs > maxWaitMs
  const destroy = (isDead: (watched: Watched) => boolean): number => {
    const dead = [...sockets].filter(([, watched]) => isDead(watched))
    for (const [socket] of dead) {
      sockets.delete(socket)
      socket.destroy()
    }
    return dead.length
  }
  const check = (): void => {
    isSettling = false
    settled.openUnsafe()
    for (const [{ bytesRead }, watched] of sockets) {
      if (bytesRead !== watched.bytesRead) Object.assign(watched, { bytesRead, heardAtMs: elapsedMs })
    }
    const lost = [...statements].filter(([, sentAtMs]) => isOver(sentAtMs))
    const destroyed = destroy(({ bytesRead, heardAtMs }) => (lost.length > 0 || bytesRead === 0) && isOver(heardAtMs))
    if (destroyed === 0) return
    // A lost statement destroys sockets only once, even if the driver still waits for its cancellation.
    for (const [statement] of lost) statements.delete(statement)
    isSettling = true
    settled.closeUnsafe()
  }
  const tick = Effect.gen(function*() {
    if (sockets.size === 0 && !isSettling) yield* hasSockets.await
    const startedAt = clock.monotonicTimeNanosUnsafe()
    yield* Effect.sleep(tickMs)
    check()
    elapsedMs += Math.min(Number(clock.monotonicTimeNanosUnsafe() - startedAt) / 1e6, 2 * tickMs)
    if (sockets.size === 0) hasSockets.closeUnsafe()
  })
  yield* Effect.forkScoped(Effect.forever(tick))

  const watch: Statements = {
    begin: (statement) => void statements.set(statement, elapsedMs),
    end: (statement) => void statements.delete(statement),
    isSettling: () => isSettling,
    settled: settled.await
  }
  return {
    ...watch,
    open: (): Socket => {
      const socket = open()
      sockets.set(socket, { bytesRead: 0, heardAtMs: elapsedMs })
      hasSockets.openUnsafe()
      return socket.on("close", () => void sockets.delete(socket))
    }
  }
})
