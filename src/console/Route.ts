/** Routes by the fragment of the URL, so that the browser's Back works and the server needs no route for each view. */
import { Option, Schema } from "effect"
import { useEffect, useState } from "preact/hooks"
import { AuditQuery } from "../api/Audit.ts"
import { KeysQuery } from "../api/KeySchemas.ts"

const queries = { keys: KeysQuery, audit: AuditQuery } as const
type Queries = { readonly [View in keyof typeof queries]: typeof queries[View]["Type"] }

export type Route =
  | { readonly view: "key"; readonly id: string }
  | { readonly [View in keyof Queries]: { readonly view: View; readonly query: Queries[View] } }[keyof Queries]

export const hrefOf = (route: Route): string => {
  if (route.view === "key") return `#/keys/${encodeURIComponent(route.id)}`
  const parameters = new URLSearchParams(Schema.encodeSync(queries[route.view])(route.query)).toString()
  return parameters === "" ? `#/${route.view}` : `#/${route.view}?${parameters}`
}

const parseRoute = (fragment: string): Route => {
  const [path = "", text = ""] = fragment.replace(/^#\/?/, "").split("?")
  const [, id] = /^keys\/(.+)$/.exec(path) ?? []
  if (id !== undefined) return { view: "key", id: new URLSearchParams(`id=${id}`).get("id") ?? id }
  const parameters = Object.fromEntries(new URLSearchParams(text))
  const parse = <View extends keyof Queries>(view: View) => ({
    view,
    query: Option.getOrElse(Schema.decodeOption(queries[view])(parameters), () => ({}))
  })
  return path === "audit" ? parse("audit") : parse("keys")
}

const preventDefault = (event: Event): void => event.preventDefault()

let blockedFragment: string | undefined

export const isNavigationBlocked = (): boolean => blockedFragment !== undefined

export const blockNavigation = (): () => void => {
  blockedFragment = location.hash
  addEventListener("beforeunload", preventDefault)
  return () => {
    blockedFragment = undefined
    removeEventListener("beforeunload", preventDefault)
  }
}

export const useRoute = (): Route => {
  const [fragment, setFragment] = useState(location.hash)
  useEffect(() => {
    const update = (): void => {
      if (blockedFragment === undefined) setFragment(location.hash)
      else history.pushState(null, "", `${location.pathname}${blockedFragment}`)
    }
    addEventListener("hashchange", update)
    return () => removeEventListener("hashchange", update)
  }, [])
  return parseRoute(fragment)
}
