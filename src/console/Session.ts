/** The session of an operator. The admin token is in the memory of the page alone, so a reload ends the session. */
import { Effect, Redacted, Result } from "effect"
import { createContext } from "preact"
import { useContext } from "preact/hooks"
import { AdminClient } from "../client/PetstoreClient.ts"

/** The calls of a signed-in operator. */
export interface Session {
  readonly client: AdminClient["Service"]
  /** Ends the session. The sign-in page shows `reason`. */
  signOut(reason?: string): void
  /** Shows the result of an action, and says it to screen readers. */
  announce(message: string): void
}

/** A failed call: an error of the API, or no response. */
export interface Failure {
  readonly _tag: string
  readonly message: string
}

/** The operator waits for each call, so a call fails soon: after one retry, or 15 seconds without a response. */
const policy = { retry: { times: 1, maxWait: "2 seconds" }, timeout: "15 seconds" } as const

/** Makes a client with the token. Fails unless the service accepts the token. */
export const signIn = (token: string): Promise<Result.Result<AdminClient["Service"], Failure>> =>
  Effect.gen(function*() {
    const client = yield* AdminClient
    yield* client.list({ limit: 1 })
    return client
  }).pipe(
    Effect.provide(AdminClient.layer({ baseUrl: location.origin, token: Redacted.make(token), ...policy })),
    Effect.result,
    Effect.runPromise
  )

export const SessionContext = createContext<Session | undefined>(undefined)

/** Returns the session of the page. Only pages behind the sign-in use it. */
export const useSession = (): Session => {
  const session = useContext(SessionContext)
  if (session === undefined) throw new Error("There is no session")
  return session
}

/** Returns whether a failure ends the session: the service has another token than that of the page. */
export const endsSession = ({ _tag }: Failure): boolean => _tag === "InvalidAdminToken" || _tag === "MissingAdminToken"
