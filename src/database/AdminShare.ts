import { Context, Effect, Semaphore } from "effect"
import * as Outage from "./Outage.ts"

/**
 * Limits how many connections the statements of the admin API and of the expiry use at once. So waits on their tables
 * leave connections for the API, the lookup of keys, `/readyz` and flushes. The embedded database needs no limit.
 */
export const AdminShare = Context.Reference<Semaphore.Semaphore | undefined>("petstore/AdminShare", {
  defaultValue: () => undefined
})

/** A quarter of the pool, so one connection of a pool of two. */
export const makeShare = (maxConnections: number) => Semaphore.make(Math.max(1, Math.floor(maxConnections / 4)))

export const within = <A, E, R>(statements: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(AdminShare, (share) => share === undefined ? statements : share.withPermit(statements))

/** As `Outage.makeDeadline`, for statements of the admin API. The deadline includes the wait for a connection. */
export const makeDeadline = Effect.gen(function*() {
  const share = yield* AdminShare
  const withinDeadline = yield* Outage.makeDeadline()
  return <A, E, R>(statements: Effect.Effect<A, E, R>) =>
    withinDeadline(Effect.provideService(within(statements), AdminShare, share))
})
