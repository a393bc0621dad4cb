/** This process's own counts of callers, and their merges into Redis. */
import { Effect } from "effect"
import * as CallerStates from "../CallerStates.ts"
import type { Caller } from "../CallerStates.ts"
import * as Policy from "../Policy.ts"
import type { RedisDown } from "./RedisClient.ts"
import type { RedisConnection } from "./RedisConnection.ts"
import * as RedisScripts from "./RedisScripts.ts"
import type { Route } from "./Shard.ts"
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

/** The state of a caller about which no Redis has replied. */
const none: Policy.State = {}

/** Runs the script that merges counts of a caller, and returns the state that Redis then has. */
type RunMerge = (
  route: Route,
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

  /** `now` returns the time of a caller's shard. */
  static readonly make = (now: (caller: Caller) => number, runMerge: RunMerge) =>
    Effect.map(
      CallerStates.make<LocalState>(({ state }, caller) => Policy.endOf(state) - now(caller), () => 0),
      (callers) => new LocalCounts(callers, runMerge)
    )

  constructor(callers: CallerStates.CallerStates<LocalState>, runMerge: RunMerge) {
    this.#callers = callers
    this.#runMerge = runMerge
  }

  isMerged(caller: Caller, { connection }: Pick<Route, "connection">): boolean {
    const local = this.#callers.get(caller)
    return local === undefined || local.confirmedBy === connection
  }

  /** Records a state that Redis replied with. Local counts that are not merged yet are kept. */
  confirm(caller: Caller, state: Policy.State, route: Pick<Route, "connection">): void {
    if (this.isMerged(caller, route)) {
      this.#callers.set(caller, { state, confirmed: state, confirmedBy: route.connection })
    }
  }

  get(caller: Caller): Policy.State {
    return this.#callers.get(caller)?.state ?? {}
  }

  /** Sets a state that Redis does not know. */
  set(caller: Caller, state: Policy.State): void {
    const { confirmed = none, unconfirmedMerge } = this.#callers.get(caller) ?? {}
    this.#callers.set(caller, { state, confirmed, confirmedBy: undefined, unconfirmedMerge })
  }

  /**
   * Converts the states of callers that `isShifted` selects, which were counted on this process's own clock, to a clock
   * that is ahead by `offset`. A state that a Redis confirmed has the times of that Redis, and stays.
   */
  shift(offset: number, isShifted: (caller: Caller) => boolean): void {
    this.#callers.update((local, caller) =>
      local.confirmed === none && isShifted(caller)
        ? { state: Policy.shift(local.state, offset), confirmed: none, confirmedBy: undefined }
        : local
    )
  }

  /** Merges the counts of `caller` into Redis, once for all fibers that wait for it. */
  merge(route: Route, caller: Caller): Effect.Effect<void, RedisDown> {
    return Effect.suspend(() =>
      this.isMerged(caller, route)
        ? Effect.void
        : this.#merging.run(caller, this.#mergeOnce(route, caller))
    )
  }

  /**
   * Merges the counts of all callers that `isMember` selects. Another process may be asked about a caller that only
   * this process knows.
   */
  mergeAll(route: Route, isMember: (caller: Caller) => boolean): Effect.Effect<void> {
    return Effect.forEach(
      this.#callers.all(),
      ([caller]) => isMember(caller) ? Effect.ignore(this.merge(route, caller)) : Effect.void,
      { concurrency: 16, discard: true }
    )
  }

  readonly #mergeOnce = Effect.fnUntraced({ self: this }, function*(
    route: Route,
    caller: Caller
  ): Effect.fn.Return<void, RedisDown> {
    while (true) {
      const local = this.#callers.get(caller)
      if (local === undefined) return
      // One merge at a time: until Redis replies, it is unknown whether its states contain the merge.
      const { unconfirmedMerge: merge = { ...local, number: yield* RedisScripts.mergeNumber } } = local
      this.#callers.set(caller, { ...local, unconfirmedMerge: merge })
      const reply = yield* this.#runMerge(route, caller, merge)
      const { state = merge.state } = this.#callers.get(caller) ?? {}
      if (state === merge.state) {
        this.#callers.set(caller, { state: reply.state, confirmed: reply.state, confirmedBy: route.connection })
        return
      }
      // This process has counted meanwhile. The next merge contains these counts.
      this.#callers.set(caller, { state, confirmed: merge.state, confirmedBy: undefined })
    }
  })
}
