/**
 * The session of an operator, and the hooks that run its calls of the management API.
 *
 * The admin token is in the memory of the page alone, so a reload ends the session.
 */
import { Effect, Redacted, type Result, type Schema } from "effect"
import { type ComponentChildren, createContext } from "preact"
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks"
import type { Session as TokenSession } from "../api/AdminApi.ts"
import { AdminClient } from "../client/AdminClient.ts"
import { isPageHeld } from "./Route.ts"

export type Client = AdminClient["Service"]

/** The client of a signed-in operator, with what the service says about its token. */
export interface SignedIn extends Schema.Schema.Type<typeof TokenSession> {
  readonly client: Client
}

export interface Session extends SignedIn {
  /** Ends the session. The sign-in page shows `reason`. */
  signOut(reason?: string): void
  /** Shows the result of an action. Screen readers say it. */
  announce(message: ComponentChildren): void
}

/** A failed call: an error of the API, or no response. */
export interface Failure {
  readonly _tag: string
  readonly message: string
}

/** The operator waits for each call, so a call fails soon: after one retry, or 15 seconds without a response. */
const policy = { retry: { times: 1, maxWait: "2 seconds" }, timeout: "15 seconds" } as const

/** Fails unless the service accepts the token. */
export const signIn = (token: string): Promise<Result.Result<SignedIn, Failure>> =>
  AdminClient.use((client) => Effect.map(client.session(), (session) => ({ ...session, client }))).pipe(
    Effect.provide(AdminClient.layer({ baseUrl: location.origin, token: Redacted.make(token), ...policy })),
    Effect.result,
    Effect.runPromise
  )

export const SessionContext = createContext<Session | undefined>(undefined)

/** Returns the session of the page. Only views behind the sign-in use it. */
export const useSession = (): Session => {
  const session = useContext(SessionContext)
  if (session === undefined) throw new Error("There is no session")
  return session
}

/** Returns a function that runs a call and passes its outcome on. It ends the session if the token is rejected. */
const useCall = () => {
  const { signOut } = useSession()
  return useCallback(
    <A>(call: Effect.Effect<A, Failure>, onSuccess: (value: A) => void, onFailure: (message: string) => void) =>
      call.pipe(
        Effect.catchDefect((defect) => Effect.fail({ _tag: "Defect", message: String(defect) })),
        Effect.match({
          onSuccess,
          onFailure: (failure) => {
            const isRejected = failure._tag === "InvalidAdminToken" || failure._tag === "MissingAdminToken"
            // A held page shows a secret, which the end of the session would hide.
            if (isRejected && !isPageHeld()) signOut("The service no longer accepts this token. Sign in again.")
            else onFailure(failure.message)
          }
        })
      ),
    [signOut]
  )
}

/** The state of a query. A failed reload keeps the last value, if it has the same id. */
export interface Query<A> {
  readonly value: A | undefined
  readonly failure: string | undefined
  readonly isLoading: boolean
  reload(): void
}

/**
 * Runs `read` when the view appears and when `id` changes, and again every `everyMs` while the page is visible. An
 * earlier run is interrupted, so its response never replaces a later one.
 */
export const useQuery = <A>(read: Effect.Effect<A, Failure>, id: string, everyMs?: number): Query<A> => {
  const call = useCall()
  const [state, setState] = useState<{ readonly value?: A; readonly valueId?: string; readonly failure?: string }>({})
  const [isLoading, setIsLoading] = useState(true)
  const [run, setRun] = useState(0)
  const latest = useRef(read)
  latest.current = read
  useEffect(() => {
    setIsLoading(true)
    const once = call(
      Effect.suspend(() => latest.current),
      (value) => setState({ value, valueId: id }),
      (failure) => setState((before) => ({ ...before.valueId === id ? before : undefined, failure }))
    ).pipe(Effect.andThen(Effect.sync(() => setIsLoading(false))))
    const whileVisible = Effect.suspend(() => document.visibilityState === "visible" ? once : Effect.void)
    const abort = new AbortController()
    Effect.runFork(
      everyMs === undefined ? once : Effect.forever(Effect.andThen(whileVisible, Effect.sleep(everyMs))),
      { signal: abort.signal }
    )
    return () => abort.abort()
  }, [call, everyMs, id, run])
  const reload = useCallback(() => setRun((count) => count + 1), [])
  return { value: state.value, failure: state.failure, isLoading, reload }
}

/**
 * Runs the calls of a form or of a button, one at a time, and passes the value of a call to `onSuccess`. A call ends
 * even if its view disappears.
 */
export const useAction = () => {
  const call = useCall()
  const [failure, setFailure] = useState<string>()
  const [isRunning, setIsRunning] = useState(false)
  const run = <A>(effect: Effect.Effect<A, Failure>, onSuccess: (value: A) => void): void => {
    if (isRunning) return
    setIsRunning(true)
    setFailure(undefined)
    const end = Effect.sync(() => setIsRunning(false))
    Effect.runFork(Effect.ensuring(call(effect, onSuccess, setFailure), end))
  }
  return { failure, isRunning, run }
}
