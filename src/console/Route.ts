/** The route of the console, in the fragment of the URL: no server sees it, and the Back button works. */
import { Option, Schema } from "effect"
import { useEffect, useState } from "preact/hooks"
import { AuditQuery } from "../api/Audit.ts"
import { KeysQuery } from "../api/Keys.ts"
import { TopUsageQuery } from "../api/Usage.ts"

/** The queries of the lists are those of their requests, so the URL has the filter and the position. */
const queries = { keys: KeysQuery, top: TopUsageQuery, audit: AuditQuery } as const
type Queries = { readonly [View in keyof typeof queries]: typeof queries[View]["Type"] }

export type Route =
  | { readonly view: "key"; readonly id: string }
  | { readonly [View in keyof Queries]: { readonly view: View; readonly query: Queries[View] } }[keyof Queries]

export const hrefOf = (route: Route): string => {
  if (route.view === "key") return `#/keys/${encodeURIComponent(route.id)}`
  const parameters = new URLSearchParams(Schema.encodeSync(queries[route.view])(route.query)).toString()
  return parameters === "" ? `#/${route.view}` : `#/${route.view}?${parameters}`
}

/** Parses a fragment. An unknown one is the list of all keys, and an invalid query is none. */
const parseRoute = (fragment: string): Route => {
  const [path = "", text = ""] = fragment.replace(/^#\/?/, "").split("?")
  const [, id] = /^keys\/(.+)$/.exec(path) ?? []
  if (id !== undefined) return { view: "key", id: new URLSearchParams(`id=${id}`).get("id") ?? id }
  const parameters = Object.fromEntries(new URLSearchParams(text))
  const parse = <View extends keyof Queries>(view: View) => ({
    view,
    query: Option.getOrElse(Schema.decodeOption(queries[view])(parameters), () => ({}))
  })
  return path === "audit" ? parse("audit") : path === "top" ? parse("top") : parse("keys")
}

const preventDefault = (event: Event): void => event.preventDefault()

/** The fragment of the held page, or `undefined` if the page is not held. */
let heldFragment: string | undefined

export const isPageHeld = (): boolean => heldFragment !== undefined

/** Keeps Back on the page, and makes the browser ask before a reload, until the returned function runs. */
export const holdPage = (): () => void => {
  heldFragment = location.hash
  addEventListener("beforeunload", preventDefault)
  return () => {
    heldFragment = undefined
    removeEventListener("beforeunload", preventDefault)
  }
}

/** Returns the current route, and renders again when it changes. */
export const useRoute = (): Route => {
  const [fragment, setFragment] = useState(location.hash)
  useEffect(() => {
    const update = (): void => {
      // The browser has already changed the URL, so the URL of the held page becomes a new entry of the history.
      if (heldFragment === undefined) setFragment(location.hash)
      else history.pushState(null, "", `${location.pathname}${heldFragment}`)
    }
    addEventListener("hashchange", update)
    return () => removeEventListener("hashchange", update)
  }, [])
  return parseRoute(fragment)
}
