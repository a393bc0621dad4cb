import { type ComponentChildren, render } from "preact"
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks"
import { title } from "../api/Brand.ts"
import { AuditLog } from "./AuditLog.tsx"
import { KeyList } from "./KeyList.tsx"
import { KeyPage } from "./KeyPage.tsx"
import { Alert, handleSubmit, textsOf } from "./Parts.tsx"
import { useRoute } from "./Route.ts"
import { SessionContext, type SignedIn, signIn, useAction } from "./Session.ts"

// Not `autofocus`: it works only once per page load, but the sign-in form can appear again.
const focus = (element: HTMLElement | null): void => element?.focus()

const SignIn = ({ onSignIn, reason }: { readonly reason: string | undefined; onSignIn(session: SignedIn): void }) => {
  const { failure = reason, isRunning, run } = useAction()
  const submit = handleSubmit((form) => run(signIn(textsOf(form).token ?? ""), onSignIn))
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit}>
        <h1>{title} console</h1>
        <label class="field">
          <span>Admin token</span>
          <input type="password" name="token" required ref={focus} autocomplete="off" aria-describedby="token-hint" />
        </label>
        <p class="muted" id="token-hint">
          Your own token from <code>ADMIN_TOKENS</code>, else <code>ADMIN_TOKEN</code> or the file{" "}
          <code>admin-token</code> in <code>DATA_DIR</code>. This page keeps it only in memory: a reload signs you out.
        </p>
        {failure !== undefined && <Alert>{failure}</Alert>}
        <button type="submit" class="primary" aria-disabled={isRunning}>
          {isRunning ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  )
}

const Console = () => {
  const [state, setState] = useState<SignedIn | { readonly reason?: string | undefined }>({})
  const [message, announce] = useState<ComponentChildren>()
  const route = useRoute()
  const main = useRef<HTMLElement>(null)
  const place = route.view === "key" ? route.id : route.view === "audit"
  const signOut = useCallback((reason?: string) => setState({ reason }), [])
  const environment = "client" in state && state.environment !== null ? `${state.environment} · ` : ""
  // Scroll each new view to the top and focus it. Use a layout effect, because a plain effect runs later and could take
  // the focus from a field in which the operator is already typing.
  useLayoutEffect(() => {
    document.title = `${environment}${route.view === "audit" ? "Audit log" : "Keys"} · ${title} console`
    main.current?.focus({ preventScroll: true })
    scrollTo(0, 0)
    announce(undefined)
  }, [place, state])
  if (!("client" in state)) return <SignIn reason={state.reason} onSignIn={setState} />
  return (
    <SessionContext.Provider value={{ ...state, signOut, announce }}>
      <header>
        <div class="inner">
          <strong>{title}</strong>
          {state.environment !== null && <span class="badge">{state.environment}</span>}
          <nav aria-label="Views">
            <a href="#/keys" aria-current={route.view === "audit" ? undefined : "page"}>Keys</a>
            <a href="#/audit" aria-current={route.view === "audit" ? "page" : undefined}>Audit log</a>
          </nav>
          <span class="operator">
            {state.operator} {!state.mayChange && <span class="muted">(read only)</span>}
          </span>
          <button type="button" onClick={() => signOut()}>Sign out</button>
        </div>
      </header>
      <p class="inner toast" role="status">{message}</p>
      <main class="inner" ref={main} tabIndex={-1}>
        {route.view === "keys" && <KeyList query={route.query} />}
        {route.view === "key" && <KeyPage key={route.id} id={route.id} />}
        {route.view === "audit" && <AuditLog query={route.query} />}
      </main>
    </SessionContext.Provider>
  )
}

const app = document.getElementById("app")
if (app !== null) render(<Console />, app)
