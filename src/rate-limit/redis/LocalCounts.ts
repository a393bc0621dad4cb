/** This process's own counts of callers, and their merges into Redis. */
import { Effect } from "effect"
import * as CallerStates from "../CallerStates.ts"
import type { Caller } from "../CallerStates.ts"
import * as Policy from "../Policy.ts"
import type { RedisConnection, RedisDown } from "./RedisConnection.ts"
import * as RedisScripts from "./RedisScripts.ts"
import { SingleFlight } from "./SingleFlight.ts"

/** The local knowledge about a caller. */
interface LocalState {
  readonly state: Policy.State
  /** The state that Redis last confirmed. The difference to `state` is unknown to Redis. */
  readonly confirmed: Policy.State
  /** The connection that confirmed it, or `undefined` if this process has counted on its own since. */
  readonly confirmedBy: RedisConnection | undefined
  /** The last merge to which Redis has not replied. */
  readonly unconfirmedMerge?: RedisScripts.Merge | undefined
}

/** Runs the script that merges counts of a caller, and returns the state that Redis then has. */
type RunMerge = (
  connection: RedisConnection,
  caller: Caller,
  merge: RedisScripts.Merge
) => Effect.Effect<{ readonly state: Policy.State }, RedisDown>

/**
 * The local counts of callers. A caller is merged with a connection if this process has counted nothing for it since
 * that connection confirmed its state. Only then may a reply replace the local state, and may Redis decide.
 */
export class LocalCounts {
  readonly #callers: CallerStates.CallerStates<LocalState>
  readonly #runMerge: RunMerge
  readonly #merging = new SingleFlight<Caller, RedisDown>()

  static readonly make = (now: () => number, runMerge: RunMerge) =>
    Effect.map(
      CallerStates.make<LocalState>(({ state }) => Policy.endOf(state), now),
      (callers) => new LocalCounts(callers, runMerge)
    )

  constructor(callers: CallerStates.CallerStates<LocalState>, runMerge: RunMerge) {
    this.#callers = callers
    this.#runMerge = runMerge
  }

  isMerged(caller: Caller, connection: RedisConnection): boolean {
    const local = this.#callers.get(caller)
    return local === undefined || local.confirmedBy === connection
  }

  /** Records a state that Redis replied with. Local counts that are not merged yet are kept. */
  confirm(caller: Caller, state: Policy.State, connection: RedisConnection): void {
    if (this.isMerged(caller, connection)) {
      this.#callers.set(caller, { state, confirmed: state, confirmedBy: connection })
    }
  }

  get(caller: Caller): Policy.State {
    return this.#callers.get(caller)?.state ?? {}
  }

  /** Sets a state that Redis does not know. */
  set(caller: Caller, state: Policy.State): void {
    const { confirmed = {}, unconfirmedMerge } = this.#callers.get(caller) ?? {}
    this.#callers.set(caller, { state, confirmed, confirmedBy: undefined, unconfirmedMerge })
  }

  /** Converts all states, which were counted on this process's own clock, to a clock that is ahead by `offset`. */
  shift(offset: number): void {
    this.#callers.update(({ state }) => ({
      state: Policy.shift(state, offset),
      confirmed: {},
      confirmedBy: undefined
    }))
  }

  /** Merges the counts of `caller` into Redis, once for all fibers that wait for it. */
  merge(connection: RedisConnection, caller: Caller): Effect.Effect<void, RedisDown> {
    return Effect.suspend(() =>
      this.isMerged(caller, connection)
        ? Effect.void
        : this.#merging.run(caller, this.#mergeOnce(connection, caller))
    )
  }

  /** Merges the counts of all callers. Another process may be asked about a caller that only this process knows. */
  mergeAll(connection: RedisConnection): Effect.Effect<void> {
    return Effect.forEach(this.#callers.all(), ([caller]) => Effect.ignore(this.merge(connection, caller)), {
      concurrency: 16,
      discard: true
    })
  }

  readonly #mergeOnce = Effect.fnUntraced({ self: this }, function*(
    connection: RedisConnection,
    caller: Caller
  ): Effect.fn.Return<void, RedisDown> {
    while (true) {
      const local = this.#callers.get(caller)
      if (local === undefined) return
      // One merge at a time: until Redis replies, it is unknown whether its states contain the merge.
      const { unconfirmedMerge: merge = { ...local, number: yield* RedisScripts.mergeNumber } } = local
      this.#callers.set(caller, { ...local, unconfirmedMerge: merge })
      const reply = yield* this.#runMerge(connection, caller, merge)
      const { state = merge.state } = this.#callers.get(caller) ?? {}
      if (state === merge.state) {
        this.#callers.set(caller, { state: reply.state, confirmed: reply.state, confirmedBy: connection })
        return
      }
      // This process has counted meanwhile. The next merge contains these counts.
      this.#callers.set(caller, { state, confirmed: merge.state, confirmedBy: undefined })
    }
  })
}
