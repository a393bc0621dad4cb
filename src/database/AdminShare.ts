import { Context, Effect, identity, Semaphore } from "effect"
import type { OutageErrors } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

/**
 * Runs statements of the admin API, of `Expiry.ts`, and of background writes of usage and audit entries, and limits how
 * many connections they use at once. So while such statements wait for locks, a pool of two or more connections still
 * has some for the API, the lookup of keys, `/readyz` and the saves of rate-limit states.
 */
export class AdminShare extends Context.Service<
  AdminShare,
  <A, E, R>(statements: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
>()("database/AdminShare") {
  /** The limit is a quarter of the pool, but at least one connection. */
  static readonly ofPool = (maxConnections: number) =>
    Effect.map(Semaphore.make(Math.max(1, Math.floor(maxConnections / 4))), (share) => AdminShare.of(share.withPermit))

  /** No limit, for the embedded database: it has one connection, which all statements share. */
  static readonly unlimited = AdminShare.of(identity)
}

/** Like `Outage.makeRunner`, for statements of the admin API. The deadline includes the wait for the share. */
export const makeDeadline = Effect.fnUntraced(function*<U>(errors: OutageErrors<U>) {
  const withinShare = yield* AdminShare
  const withinDeadline = yield* Outage.makeRunner(errors)
  return <A, E, R>(statements: Effect.Effect<A, E, R>) => withinDeadline(withinShare(statements))
})
