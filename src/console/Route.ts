/** The route of the console, in the fragment of the URL: no server sees it, and the Back button works. */
import { useEffect, useState } from "preact/hooks"
import { type KeyFilter, KeyState } from "../api/Keys.ts"
import { Plan } from "../api/Plans.ts"

/** The filter of the list of keys. */
export type ListFilter = Pick<KeyFilter, "plan" | "state" | "search">

/** The views of the console. */
export type Route =
  | { readonly view: "keys"; readonly filter: ListFilter }
  | { readonly view: "key"; readonly id: string }
  | { readonly view: "overview" }
  | { readonly view: "audit" }

/** Returns the fragment of a route. */
export const hrefOf = (route: Route): string => {
  switch (route.view) {
    case "key":
      return `#/keys/${encodeURIComponent(route.id)}`
    case "keys": {
      const query = new URLSearchParams(
        Object.entries(route.filter).filter((entry): entry is [string, string] => typeof entry[1] === "string")
      ).toString()
      return query === "" ? "#/keys" : `#/keys?${query}`
    }
    default:
      return `#/${route.view}`
  }
}

/** Returns the item of `items` that equals `text`. */
export const oneOf = <A extends string>(items: ReadonlyArray<A>, text: string | null): A | undefined =>
  items.find((item) => item === text)

/** Parses a fragment. An unknown one is the list of all keys. */
export const parseRoute = (fragment: string): Route => {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?")
  if (path === "overview" || path === "audit") return { view: path }
  const [, id] = /^keys\/(.+)$/.exec(path) ?? []
  if (id !== undefined) return { view: "key", id: decode(id) }
  const parameters = new URLSearchParams(query)
  const plan = oneOf(Plan.literals, parameters.get("plan"))
  const state = oneOf(KeyState.literals, parameters.get("state"))
  const search = parameters.get("search") ?? ""
  return {
    view: "keys",
    filter: {
      ...plan !== undefined && { plan },
      ...state !== undefined && { state },
      ...search !== "" && { search }
    }
  }
}

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Returns the current route, and renders again when it changes. */
export const useRoute = (): Route => {
  const [fragment, setFragment] = useState(location.hash)
  useEffect(() => {
    const update = (): void => setFragment(location.hash)
    addEventListener("hashchange", update)
    return () => removeEventListener("hashchange", update)
  }, [])
  return parseRoute(fragment)
}
