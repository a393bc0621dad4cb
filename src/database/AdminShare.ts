import { Context, Effect, identity, Semaphore } from "effect"
import type { OutageErrors } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

/**
 * Runs statements of the admin API, of the expiry, and of background writes to tables that only the admin API reads,
 * and limits how many connections they use at once. So waits on these tables leave connections for the API, the lookup
 * of keys, `/readyz` and the saves of rate-limit states.
 */
export class AdminShare extends Context.Service<
  AdminShare,
  <A, E, R>(statements: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
>()("database/AdminShare") {
  /** A quarter of the pool, but at least one connection. */
  static readonly ofPool = (maxConnections: number) =>
    Effect.map(Semaphore.make(Math.max(1, Math.floor(maxConnections / 4))), (share) => AdminShare.of(share.withPermit))

  /** For the embedded database, which has one connection. */
  static readonly unlimited = AdminShare.of(identity)
}

/** Like `Outage.makeRunner`, for statements of the admin API. The deadline includes the wait for the share. */
export const makeDeadline = Effect.fnUntraced(function*<U>(errors: OutageErrors<U>) {
  const withinShare = yield* AdminShare
  const withinDeadline = yield* Outage.makeRunner(errors)
  return <A, E, R>(statements: Effect.Effect<A, E, R>) => withinDeadline(withinShare(statements))
})
