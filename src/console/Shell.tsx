/** The frame of all views: the navigation, the state of the service, and the results of actions. */
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { Logo } from "./Logo.tsx"
import { hrefOf, type Route } from "./Route.ts"
import { ServiceState } from "./ServiceState.tsx"
import { useSession } from "./Session.ts"

const tabs: ReadonlyArray<readonly [name: string, route: Route, views: ReadonlyArray<Route["view"]>]> = [
  ["Keys", { view: "keys", filter: {} }, ["keys", "key"]],
  ["Overview", { view: "overview" }, ["overview"]],
  ["Audit log", { view: "audit" }, ["audit"]]
]

/** Milliseconds for which the result of an action is shown. */
const messageMs = 6_000

export const Shell = ({ children, message, route }: {
  readonly route: Route
  /** The result of the last action. */
  readonly message: string
  readonly children: ComponentChildren
}) => {
  const { announce, signOut } = useSession()
  const main = useRef<HTMLElement>(null)
  const place = route.view === "key" ? route.id : route.view
  // A new view begins at its top, and the keyboard continues there.
  useEffect(() => {
    document.title = `${tabs.find(([, , views]) => views.includes(route.view))?.[0]} · Petstore console`
    main.current?.focus({ preventScroll: true })
    scrollTo(0, 0)
    announce("")
  }, [place, announce])
  useEffect(() => {
    const timer = setTimeout(() => announce(""), messageMs)
    return () => clearTimeout(timer)
  }, [message, announce])
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault()
          main.current?.focus()
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <div class="inner">
          <span class="brand">
            <Logo /> Petstore
          </span>
          <nav aria-label="Views">
            {tabs.map(([name, to, views]) => (
              <a href={hrefOf(to)} aria-current={views.includes(route.view) ? "page" : undefined}>{name}</a>
            ))}
          </nav>
          <ServiceState />
          <button type="button" class="quiet" onClick={() => signOut()}>Sign out</button>
        </div>
      </header>
      <main id="content" class="inner" ref={main} tabIndex={-1}>
        {children}
      </main>
      <div class="toast" role="status">{message !== "" && <p>{message}</p>}</div>
    </>
  )
}
