/** Hooks that run calls of the management API for a view, and hold their state. */
import { Effect } from "effect"
import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { endsSession, type Failure, useSession } from "./Session.ts"

/** Runs an effect in the background. Returns the function that interrupts it, which is the cleanup of a hook. */
export const runInBackground = (effect: Effect.Effect<void>): () => void => {
  const abort = new AbortController()
  Effect.runFork(effect, { signal: abort.signal })
  return () => abort.abort()
}

/** Repeats an effect, while the page is visible, until it is interrupted. */
export const repeatEvery = (effect: Effect.Effect<void>, everyMs: number): Effect.Effect<never> =>
  Effect.forever(
    Effect.andThen(
      Effect.suspend(() => document.visibilityState === "visible" ? effect : Effect.void),
      Effect.sleep(everyMs)
    )
  )

/** Passes the outcome of a call to a function, also a defect of this page. */
const handle = <A, E extends Failure>(
  effect: Effect.Effect<A, E>,
  { onFailure, onSuccess }: { onFailure(failure: Failure): void; onSuccess(value: A): void }
): Effect.Effect<void> =>
  Effect.match(effect, { onFailure, onSuccess }).pipe(
    Effect.catchDefect((defect) => Effect.sync(() => onFailure({ _tag: "Defect", message: String(defect) })))
  )

/** The state of a query. A failed reload keeps the last value, if it has the same id. */
export interface Query<A> {
  readonly value: A | undefined
  readonly failure: string | undefined
  readonly isLoading: boolean
  reload(): void
}

const tokenChanged = "The service no longer accepts this token. Sign in again."

/**
 * Runs `effect` when the view appears and when `id` changes, and again every `everyMs` while the page is visible. An
 * earlier run is interrupted, so its response never replaces a later one.
 */
export const useQuery = <A, E extends Failure>(
  effect: Effect.Effect<A, E>,
  id: string,
  everyMs?: number
): Query<A> => {
  const { signOut } = useSession()
  const [state, setState] = useState<Omit<Query<A>, "reload">>({
    value: undefined,
    failure: undefined,
    isLoading: true
  })
  const [run, setRun] = useState(0)
  const latest = useRef(effect)
  latest.current = effect
  /** The id of the last value. */
  const valueId = useRef<string>(undefined)
  useEffect(() => {
    setState(({ value }) => ({ value, failure: undefined, isLoading: true }))
    const read = handle(Effect.suspend(() => latest.current), {
      onSuccess: (value) => {
        valueId.current = id
        setState({ value, failure: undefined, isLoading: false })
      },
      onFailure: (failure) => {
        if (endsSession(failure)) signOut(tokenChanged)
        else {
          setState(({ value }) => ({
            value: valueId.current === id ? value : undefined,
            failure: failure.message,
            isLoading: false
          }))
        }
      }
    })
    return runInBackground(everyMs === undefined ? read : repeatEvery(read, everyMs))
  }, [id, run, everyMs, signOut])
  const reload = useCallback(() => setRun((count) => count + 1), [])
  return { ...state, reload }
}

/** The state of an action that an operator starts. */
export interface Action {
  readonly failure: Failure | undefined
  readonly isRunning: boolean
  /** Runs a call, and passes its value to `onSuccess`. It does nothing while an earlier call runs. */
  run<A, E extends Failure>(effect: Effect.Effect<A, E>, onSuccess: (value: A) => void): void
}

/** Runs the calls of a form or of a button, one at a time. A call that has begun ends even if its view disappears. */
export const useAction = (): Action => {
  const { signOut } = useSession()
  const [failure, setFailure] = useState<Failure>()
  const [isRunning, setIsRunning] = useState(false)
  const run: Action["run"] = (effect, onSuccess) => {
    if (isRunning) return
    setIsRunning(true)
    setFailure(undefined)
    Effect.runFork(handle(effect, {
      onSuccess: (value) => {
        setIsRunning(false)
        onSuccess(value)
      },
      onFailure: (cause) => {
        setIsRunning(false)
        if (endsSession(cause)) signOut(tokenChanged)
        else setFailure(cause)
      }
    }))
  }
  return { failure, isRunning, run }
}
