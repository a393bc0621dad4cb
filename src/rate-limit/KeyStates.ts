/**
 * The states of API keys in memory, of which a database has copies. A state that was saved and not used for a while
 * leaves memory, and is loaded again when the key is used.
 *
 * Laws, in any order of charges, slow loads, failed and late saves, pauses of the process and steps of its clock:
 * 1. A decision uses a state that is in memory. A key without a stored state has the state `noCounts`, so no decision
 *    mistakes a state that is not loaded for one that does not exist.
 * 2. A loaded state enters memory only if the key is absent, and if its statement began less than `minGeneration` ago.
 *    So it never replaces a newer one.
 * 3. A state leaves memory only after its last change was saved, and at least `minGeneration` after its last load, use
 *    or save. So a statement that can still enter by law 2 has read the last change.
 * 4. Only the monotonic clock evicts: steps of the wall clock lose nothing.
 * 5. At most about `maxStates` saved states and `maxUnsaved` unsaved ones are in memory. While so many cannot be saved,
 *    changes of other keys fail, so that no limit is exceeded.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import * as Batcher from "../database/Batcher.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import * as Policy from "./Policy.ts"
import { type Caller, isKey, type RateLimiter, type Unavailable } from "./RateLimiter.ts"

/** A load takes less than `minGeneration`, so its result can always enter, unless the process was paused. */
const loadTimeout = Duration.millis(1_750)
const minGeneration = Duration.seconds(2)
const maxGeneration = Duration.minutes(1)
const maxKeysPerLoad = 1_000
/** After pauses, a call loads this often at most. */
const maxLoads = 3

const [minGenerationNanos, maxGenerationNanos] = [
  Duration.toNanosUnsafe(minGeneration),
  Duration.toNanosUnsafe(maxGeneration)
]

const cannotSave: Unavailable = {
  message: "The database cannot save the request counts of more API keys. Retry later."
}

/** `saveNumber` ascends. A save must not replace a stored state that has a higher number. */
interface Store {
  /** The table, for logs and metrics. */
  readonly table: string
  /** The failure of a load that takes too long. */
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
  /** Two generations of saved states. A state in `old` that is used returns to `young`. */
  let young = new Map<string, Policy.State>()
  let old = new Map<string, Policy.State>()
  let generationStart = now()
  let saves = 0
  const hasStates = yield* Latch.make()

  /** Evicts the states that were not used in the last generation. */
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

  // The write-behind buffer repeats failed writes. Its values of a running flush are not visible, hence `unsaved`.
  const changes = yield* WriteBehind.make<string, Policy.State>({
    table: store.table,
    // If a flush takes at most 500 ms, a crash loses at most one second of counts: this interval plus a flush.
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

  /** Adds a state that a statement has read, `undefined` for none. The statement began at a monotonic time. */
  const addLoaded = (key: string, state: Policy.State | undefined, startedAt: bigint): void => {
    if (find(key) === undefined && now() - startedAt < minGenerationNanos) keep(key, state ?? Policy.noCounts)
  }
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
    find,
    /** Loads the state of a key that is not in memory. */
    load: (key: string) => loadWhileAbsent(key, maxLoads),
    addLoaded,
    /** Why the state of a key must not change now. */
    whyUnchangeable: (key: string): Unavailable | undefined =>
      unsaved.size >= maxUnsaved && !unsaved.has(key) ? cannotSave : undefined,
    change(key: string, state: Policy.State): void {
      unsaved.set(key, state)
      changes.add(key, state)
    }
  }
})

interface CallerStates {
  /** Returns `undefined` if the caller's state must be loaded. */
  find(caller: Caller): Policy.State | undefined
  load(caller: Caller): Effect.Effect<unknown, Unavailable>
  set(caller: Caller, state: Policy.State, before: Policy.State): void
  /** Fails if the state of this caller must not change now. */
  readonly checkChange?: (caller: Caller) => Unavailable | undefined
}

/** Decides on states that may have to be loaded first. No call uses `Effect.gen`: each request passes `charge`. */
export const makeLimiter = (
  { checkChange = () => undefined, find, load, set }: CallerStates,
  clock: Clock.Clock
): RateLimiter["Service"] => {
  const now = () => clock.currentTimeMillisUnsafe()
  /** Applies `use` to the caller's state, without a step between the load and the use. */
  const withState = <A>(
    caller: Caller,
    use: (state: Policy.State) => Effect.Effect<A, Unavailable>
  ): Effect.Effect<A, Unavailable> =>
    Effect.suspend(() => {
      const state = find(caller)
      return state === undefined ? Effect.andThen(load(caller), withState(caller, use)) : use(state)
    })
  const change = <A>(caller: Caller, decide: (state: Policy.State) => readonly [result: A, next: Policy.State]) =>
    withState(caller, (state) => {
      const failure = checkChange(caller)
      if (failure !== undefined) return Effect.fail(failure)
      const [result, next] = decide(state)
      set(caller, next, state)
      return Effect.succeed(result)
    })
  return {
    charge: (caller, limits) =>
      change(caller, (state) => {
        const { decision, next } = Policy.decide(state, limits, now(), isKey(caller))
        return [decision, next]
      }),
    peek: (caller, limits) => withState(caller, (state) => Effect.succeed(Policy.peek(state, limits, now()))),
    unban: (caller) => change(caller, (state) => [undefined, Policy.unban(state, now())]),
    counting: Effect.succeed("own")
  }
}
