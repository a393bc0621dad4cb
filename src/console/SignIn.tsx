/** The sign-in page. */
import { Result } from "effect"
import { useState } from "preact/hooks"
import type { AdminClient } from "../client/PetstoreClient.ts"
import { Logo } from "./Logo.tsx"
import { Alert } from "./Parts.tsx"
import { signIn } from "./Session.ts"

export const SignIn = ({ onSignIn, reason }: {
  readonly reason: string | undefined
  onSignIn(client: AdminClient["Service"]): void
}) => {
  const [token, setToken] = useState("")
  const [failure, setFailure] = useState(reason)
  const [isRunning, setIsRunning] = useState(false)
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (isRunning) return
    setIsRunning(true)
    setFailure(undefined)
    const result = await signIn(token.trim())
    if (Result.isSuccess(result)) {
      onSignIn(result.success)
    } else {
      setIsRunning(false)
      setFailure(result.failure.message)
    }
  }
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit}>
        <h1>
          <Logo /> Petstore console
        </h1>
        <label class="field">
          <span>Admin token</span>
          <input
            type="password"
            class="mono"
            value={token}
            onInput={({ currentTarget }) => setToken(currentTarget.value)}
            required
            autoFocus
            autocomplete="off"
            spellcheck={false}
            aria-describedby="token-hint"
          />
          <span class="hint" id="token-hint">
            The value of <code>ADMIN_TOKEN</code>, or the file <code>admin-token</code> in <code>DATA_DIR</code>.
          </span>
        </label>
        {failure !== undefined && <Alert>{failure}</Alert>}
        <button type="submit" class="primary wide" aria-disabled={isRunning}>
          {isRunning ? "Signing in…" : "Sign in"}
        </button>
        <p class="hint">The token stays in the memory of this page. A reload signs you out.</p>
      </form>
    </main>
  )
}
