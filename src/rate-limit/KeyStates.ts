/**
 * The states of API keys in memory, of which a database has copies. A state that was saved and not used for a while
 * leaves memory, and is loaded again when the key is used.
 *
 * Laws, in any order of charges, slow loads, failed and late saves, pauses of the process and steps of its clock:
 * 1. A decision uses a state that is in memory. A key without a stored state has the state `none`, so no decision
 *    mistakes a state that is not loaded for one that does not exist.
 * 2. A loaded state enters memory only if the key is absent, and if its statement began less than `minGeneration` ago.
 *    So it never replaces a newer one.
 * 3. A state leaves memory only after its last change was saved, and at least `minGeneration` after its last load, use
 *    or save. So a statement that can still enter by law 2 has read the last change.
 * 4. Only the monotonic clock evicts: steps of the wall clock lose nothing.
 * 5. At most about `maxStates` saved states and `maxUnsaved` unsaved ones are in memory. While so many cannot be saved,
 *    changes of other keys fail with `ServiceUnavailable`, so that no limit is exceeded.
 */
import { Clock, Duration, Effect, Latch } from "effect"
import { ServiceUnavailable } from "../api/Errors.ts"
import * as Batcher from "../database/Batcher.ts"
import { databaseUnavailable } from "../database/Deadline.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import type { State } from "./Policy.ts"

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

const none: State = {}

const cannotSave = new ServiceUnavailable({
  message: "The database cannot save the request counts of more API keys. Retry later."
})

/** `saveNumber` ascends. A save must not replace a stored state that has a higher number. */
interface Store {
  /** The table, for logs and metrics. */
  readonly table: string
  readonly load: (keys: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, State>, ServiceUnavailable>
  readonly save: (states: ReadonlyMap<string, State>, saveNumber: number) => Effect.Effect<void, unknown>
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
  const unsaved = new Map<string, State>()
  /** Two generations of saved states. A state in `old` that is used returns to `young`. */
  let young = new Map<string, State>()
  let old = new Map<string, State>()
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
  const keep = (key: string, state: State): void => {
    young.set(key, state)
    hasStates.openUnsafe()
    if (young.size >= maxStates / 2 && now() - generationStart >= minGenerationNanos) beginGeneration()
  }
  const find = (key: string): State | undefined => {
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
  const changes = yield* WriteBehind.make<string, State>({
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
  const addLoaded = (key: string, state: State | undefined, startedAt: bigint): void => {
    if (find(key) === undefined && now() - startedAt < minGenerationNanos) keep(key, state ?? none)
  }
  const load = yield* Batcher.make({
    name: "RateLimiter.load",
    concurrency: 1,
    size: maxKeysPerLoad,
    timeout: loadTimeout,
    run: (keys: ReadonlyArray<string>) =>
      Effect.suspend(() => {
        const startedAt = now()
        return Effect.map(store.load(keys), (states) => {
          for (const key of keys) addLoaded(key, states.get(key), startedAt)
          return new Map()
        })
      })
  })
  const loadWhileAbsent = (key: string, loads: number): Effect.Effect<State, ServiceUnavailable> =>
    Effect.suspend(() => {
      const state = find(key)
      if (state !== undefined) return Effect.succeed(state)
      if (loads === 0) return Effect.fail(databaseUnavailable)
      return Effect.andThen(load(key), loadWhileAbsent(key, loads - 1))
    })

  return {
    find,
    /** Loads the state of a key that is not in memory. */
    load: (key: string) => loadWhileAbsent(key, maxLoads),
    addLoaded,
    /** Why the state of a key must not change now. */
    whyUnchangeable: (key: string): ServiceUnavailable | undefined =>
      unsaved.size >= maxUnsaved && !unsaved.has(key) ? cannotSave : undefined,
    change(key: string, state: State): void {
      unsaved.set(key, state)
      changes.add(key, state)
    }
  }
})
