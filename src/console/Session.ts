import { Effect, Redacted, Schema } from "effect"
import { type ComponentChildren, createContext } from "preact"
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks"
import type { Session as TokenSession } from "../api/AdminApi.ts"
import { wordsOf } from "../api/Audit.ts"
import { describeIssue } from "../api/DescribeIssue.ts"
import { AdminClient } from "../client/AdminClient.ts"
import { isNavigationBlocked } from "./Route.ts"

export type Client = AdminClient["Service"]

export interface SignedIn extends Schema.Schema.Type<typeof TokenSession> {
  readonly client: Client
}

export interface Session extends SignedIn {
  signOut(reason?: string): void
  announce(message: ComponentChildren): void
}

export type Failure = Readonly<Record<"_tag" | "message", string>>

const policy = { retry: { times: 1, maxWait: "2 seconds" }, timeout: "15 seconds" } as const

export const signIn = (token: string): Effect.Effect<SignedIn, Failure> =>
  AdminClient.use((client) => Effect.map(client.session(), (session) => ({ ...session, client }))).pipe(
    Effect.provide(AdminClient.layer({ baseUrl: location.origin, token: Redacted.make(token), ...policy }))
  )

export const SessionContext = createContext<Session | undefined>(undefined)

export const useSession = (): Session => {
  const session = useContext(SessionContext)
  if (session === undefined) throw new Error("There is no session")
  return session
}

const textOf = (failure: Failure): string =>
  Schema.isSchemaError(failure) ? describeIssue(failure.issue, (path) => path.join(".")) : failure.message

const useCall = () => {
  const signOut = useContext(SessionContext)?.signOut
  return useCallback(
    <A>(call: Effect.Effect<A, Failure>, onSuccess: (value: A) => void, onFailure: (message: string) => void) =>
      call.pipe(
        Effect.catchDefect((defect) => Effect.fail({ _tag: "Defect", message: String(defect) })),
        Effect.match({
          onSuccess,
          onFailure: (failure) => {
            const isRejected = failure._tag === "InvalidAdminToken" || failure._tag === "MissingAdminToken"
            // Do not sign out while a dialog blocks navigation: this would close the dialog, which may show a new
            // secret.
            if (signOut && isRejected && !isNavigationBlocked()) {
              signOut("The service no longer accepts this token. Sign in again.")
            } else onFailure(textOf(failure).replaceAll("body.", "").replaceAll(/expiresAt|perMinute|perDay/g, wordsOf))
          }
        })
      ),
    [signOut]
  )
}

/** The state of a repeated request. After a failed reload, `value` is still the result of the last successful one. */
export interface Query<A> {
  readonly value: A | undefined
  readonly failure: string | undefined
  readonly isLoading: boolean
  reload(): void
}

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

/** `run` does nothing during another run. Unmounting does not abort a run, because the change may already be made. */
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
