import { Context, Effect, Semaphore } from "effect"
import type { OutageErrors } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

/**
 * Limits how many connections the statements of the admin API, of the expiry, and of the flushes to tables that only
 * the admin API reads use at once. So waits on these tables leave connections for the API, the lookup of keys,
 * `/readyz` and the counts of the limits. The embedded database needs no limit.
 */
export const AdminShare = Context.Reference<Semaphore.Semaphore | undefined>("petstore/AdminShare", {
  defaultValue: () => undefined
})

/** A quarter of the pool, so one connection of a pool of two. */
export const makeShare = (maxConnections: number) => Semaphore.make(Math.max(1, Math.floor(maxConnections / 4)))

export const within = <A, E, R>(statements: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(AdminShare, (share) => share === undefined ? statements : share.withPermit(statements))

/** Returns a function as `within`, with the share of this context. */
export const makeWithin = Effect.map(
  AdminShare,
  (share) => <A, E, R>(statements: Effect.Effect<A, E, R>) =>
    Effect.provideService(within(statements), AdminShare, share)
)

/** As `Outage.makeRunner`, for statements of the admin API. The deadline includes the wait for a connection. */
export const makeDeadline = Effect.fnUntraced(function*<U>(errors: OutageErrors<U>) {
  const withinShare = yield* makeWithin
  const withinDeadline = yield* Outage.makeRunner(errors)
  return <A, E, R>(statements: Effect.Effect<A, E, R>) => withinDeadline(withinShare(statements))
})
