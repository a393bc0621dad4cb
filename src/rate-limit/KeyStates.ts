/**
 * The rate-limit states of API keys, in memory and saved to a database, and the limiter that decides on them and on
 * the states of addresses (`makeLimiterOn`). A saved state that was not used for a while leaves memory, and is loaded
 * again when its key is used.
 *
 * Laws, in any order of charges, slow loads, failed and late saves, pauses of the process and steps of its clock:
 * 1. A decision uses a state that is in memory. A key without a stored state gets the state `noCounts` when it is
 *    loaded, so no decision mistakes a state that is not loaded for one that does not exist.
 * 2. A loaded state enters memory only if the key has none there, and if the statement that read it began less than
 *    `minGeneration` ago. So it never replaces a newer state.
 * 3. A state leaves memory only after its last change was saved, and at least `minGeneration` after its last load, use
 *    or save. So a statement whose result can still enter by law 2 has read that change.
 * 4. Only the monotonic clock evicts: steps of the wall clock lose nothing.
 * 5. At most about `maxStates` saved states and `maxUnsaved` unsaved ones are in memory, and more saved ones only if
 *    more than `maxStates / 2` states are loaded, used or saved within `minGeneration`. While `maxUnsaved` states are
 *    unsaved, a charge or an unban of any other key fails: if an unsaved state left memory instead, its key could
 *    exceed its rate limit.
 */
import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import * as Batcher from "../database/Batcher.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import * as Policy from "./Policy.ts"
import type { Call, Caller, Decide, RateLimiter, Unavailable } from "./RateLimiter.ts"
import { isKey, makeLimiter, makeStates } from "./RateLimiter.ts"

/**
 * Shorter than `minGeneration`, so that the result of a load can always enter memory (law 2), unless the process was
 * paused.
 */
const loadTimeout = Duration.millis(1_750)
const minGeneration = Duration.seconds(2)
const maxGeneration = Duration.minutes(1)
const maxKeysPerLoad = 1_000
/**
 * The maximum number of loads for a call. A load is repeated if its result could not enter memory because of a pause.
 */
const maxLoads = 3

const [minGenerationNanos, maxGenerationNanos] = [
  Duration.toNanosUnsafe(minGeneration),
  Duration.toNanosUnsafe(maxGeneration)
]

const cannotSave: Unavailable = {
  message: "The database cannot save the request counts of more API keys. Retry later."
}

/**
 * Reads and writes the stored states. `saveNumber` ascends from save to save. A save must not replace a stored state
 * that has a higher number.
 */
interface Store {
  /** The name of the table, as logs and metrics show it. */
  readonly table: string
  /** The failure of a call whose load takes too long, or whose `maxLoads` loads all came too late to be used. */
  readonly unavailable: Unavailable
  readonly load: (keys: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, Policy.State>, Unavailable>
  readonly save: (states: ReadonlyMap<string, Policy.State>, saveNumber: number) => Effect.Effect<void, unknown>
}

interface Bounds {
  readonly maxStates?: number
  readonly maxUnsaved?: number
}

export const make = Effect.fnUntraced(function*(
  store: Store,
  { maxStates = 100_000, maxUnsaved = 100_000 }: Bounds = {}
) {
  const clock = yield* Clock.Clock
  const now = () => clock.monotonicTimeNanosUnsafe()
  const unsaved = new Map<string, Policy.State>()
  /** Two generations of saved states. When a state in `old` is used, it returns to `young`. */
  let young = new Map<string, Policy.State>()
  let old = new Map<string, Policy.State>()
  let generationStart = now()
  let saves = 0
  const hasStates = yield* Latch.make()

  /** Evicts the saved states that were not used in the generation that ends. */
  const beginGeneration = (): void => {
    old = young
    young = new Map()
    generationStart = now()
    if (old.size === 0) hasStates.closeUnsafe()
  }
  const keep = (key: string, state: Policy.State): void => {
    young.set(key, state)
    hasStates.openUnsafe()
    if (young.size >= maxStates / 2 && now() - generationStart >= minGenerationNanos) beginGeneration()
  }
  const find = (key: string): Policy.State | undefined => {
    const recent = unsaved.get(key) ?? young.get(key)
    if (recent !== undefined) return recent
    const aged = old.get(key)
    if (aged !== undefined) keep(key, aged)
    return aged
  }
  const endGenerations = Effect.gen(function*() {
    yield* hasStates.await
    yield* Effect.sleep(maxGeneration)
    if (now() - generationStart >= maxGenerationNanos) beginGeneration()
  })
  yield* Effect.forkScoped(Effect.forever(endGenerations))

  // Writes changes in the background, and repeats failed writes. The buffer cannot look up the values of a running
  // flush, so `unsaved` has them too.
  const changes = yield* WriteBehind.make<string, Policy.State>({
    table: store.table,
    // If a flush takes at most 250 ms, a crash loses at most one second of counts: a change waits for the flush that is
    // running, then for this interval, then for its own flush.
    interval: "500 millis",
    write: (states) =>
      Effect.map(store.save(states, ++saves), () => {
        for (const [key, state] of states) {
          if (unsaved.get(key) !== state) continue
          unsaved.delete(key)
          keep(key, state)
        }
      })
  })

  /**
   * Adds a state that a statement has read (`undefined` if none is stored), if law 2 allows it. The statement began at
   * `startedAt`, in monotonic nanoseconds.
   */
  const addLoaded = (key: string, state: Policy.State | undefined, startedAt: bigint): void => {
    if (find(key) === undefined && now() - startedAt < minGenerationNanos) keep(key, state ?? Policy.noCounts)
  }
  /** Reads the state of a key from the store into memory. */
  const load = yield* Batcher.make({
    name: "RateLimiter.load",
    concurrency: 1,
    size: maxKeysPerLoad,
    timeout: loadTimeout,
    late: store.unavailable,
    run: (keys: ReadonlyArray<string>) =>
      Effect.suspend(() => {
        const startedAt = now()
        return Effect.map(store.load(keys), (states) => {
          for (const key of keys) addLoaded(key, states.get(key), startedAt)
          return new Map()
        })
      })
  })
  const loadWhileAbsent = (key: string, loads: number): Effect.Effect<Policy.State, Unavailable> =>
    Effect.suspend(() => {
      const state = find(key)
      if (state !== undefined) return Effect.succeed(state)
      if (loads === 0) return Effect.fail(store.unavailable)
      return Effect.andThen(load(key), loadWhileAbsent(key, loads - 1))
    })

  return {
    /** Returns the state of a key, if it is in memory. */
    find,
    /** Returns the state of a key. Loads it if it is not in memory. */
    load: (key: string) => loadWhileAbsent(key, maxLoads),
    addLoaded,
    /** Returns a failure if the state of this key must not change, because too many states are unsaved. */
    whyUnchangeable: (key: string): Unavailable | undefined =>
      unsaved.size >= maxUnsaved && !unsaved.has(key) ? cannotSave : undefined,
    change(key: string, state: Policy.State): void {
      unsaved.set(key, state)
      changes.add(key, state)
    }
  }
})

/** The states of callers, which may have to be loaded. */
interface CallerStates {
  /** Returns `undefined` if the caller's state must be loaded. */
  find(caller: Caller): Policy.State | undefined
  load(caller: Caller): Effect.Effect<unknown, Unavailable>
  set(caller: Caller, state: Policy.State, before: Policy.State): void
  /** Returns a failure if the state of this caller must not change now. */
  readonly whyUnchangeable: (caller: Caller) => Unavailable | undefined
}

/** Makes a limiter that decides in memory, on `states`. */
export const makeLimiterOn = (states: CallerStates, clock: Clock.Clock): RateLimiter["Service"] => {
  /**
   * No other fiber runs between `find` and `set`, so the state is the current one. Hot path: avoids `Effect.gen`.
   */
  const run = <A>(caller: Caller, call: Call, decide: Decide<A>): Effect.Effect<A, Unavailable> =>
    Effect.suspend(() => {
      const state = states.find(caller)
      if (state === undefined) return Effect.andThen(states.load(caller), run(caller, call, decide))
      const failure = call.verb === "peek" ? undefined : states.whyUnchangeable(caller)
      if (failure !== undefined) return Effect.fail(failure)
      const [result, next] = decide(state, clock.currentTimeMillisUnsafe())
      if (call.verb !== "peek") states.set(caller, next, state)
      return Effect.succeed(result)
    })
  return makeLimiter(run, Effect.succeed("own"))
}

/** Adds the states of addresses, which are only in memory, to those of keys. */
export const withAddresses = (
  keyStates: Effect.Success<ReturnType<typeof make>>
): Effect.Effect<CallerStates, never, Scope.Scope> =>
  Effect.map(makeStates({ maxKeys: 0, none: Policy.noCounts }), (addresses) => ({
    find: (caller) => isKey(caller) ? keyStates.find(caller) : addresses.get(caller),
    load: keyStates.load,
    whyUnchangeable: (caller) => isKey(caller) ? keyStates.whyUnchangeable(caller) : undefined,
    set(caller, state, before) {
      if (!isKey(caller)) addresses.set(caller, state)
      else if (state !== before) keyStates.change(caller, state)
    }
  }))
