import { Context, Layer } from "effect"
import type { Statement } from "effect/sql"

/** Lets the statement that looks up API keys also read their rate-limit states, so that a charge need not load them. */
export interface StateLookup {
  /** Returns SQL for the stored state of a key, as text or null. `keyId` is SQL for the id of the key. */
  readonly stateOf: (keyId: Statement.Fragment) => Statement.Fragment
  /**
   * Gives the limiter the states in these rows. Their statement must have run outside of a transaction. It began at the
   * monotonic time `startedAt`, in nanoseconds.
   */
  readonly add: (rows: ReadonlyArray<{ readonly id: string; readonly state: string | null }>, startedAt: bigint) => void
}

/**
 * The limiter sets `current`, and the store of keys uses it. Neither depends on the other, so that both close at the
 * same time: each then writes what is pending. `current` stays undefined if the limiter counts in Redis.
 */
export class StateLookups extends Context.Service<StateLookups, { current: StateLookup | undefined }>()(
  "rate-limit/StateLookups"
) {
  static readonly layer = Layer.sync(StateLookups, () => ({ current: undefined }))
}
