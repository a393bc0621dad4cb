/** Parses the targets of requests: path patterns of endpoints, and query parameters. */

/** A path without percent-encoding, dots and parameters of segments, all of which the router normalizes. */
const usualPath = /^\/[\w~/-]*$/
/** A query without percent-encoding. A record cannot hold a parameter `__proto__`. */
const usualQuery = /^(?!.*__proto__)[\w.~=&-]*$/

/** The target of a request, split into its path and its query (RFC 9112 §3.2.1). */
export interface Target {
  readonly path: string
  /** The parameters as the router passes them to decoders: an array for a repeated name. */
  readonly query: Readonly<Record<string, string | ReadonlyArray<string>>>
}

/** The query of every target without one. It is always the same object. */
export const noQuery: Target["query"] = {}

/** Parses the target of a request. Returns `undefined` for a target that needs more than splitting. */
export const parseTarget = (url: string): Target | undefined => {
  const end = url.indexOf("?")
  if (end === -1) return usualPath.test(url) ? { path: url, query: noQuery } : undefined
  const path = url.slice(0, end)
  const text = url.slice(end + 1)
  return usualPath.test(path) && usualQuery.test(text) ? { path, query: parseQuery(text) } : undefined
}

const parseQuery = (text: string): Target["query"] => {
  const query: Record<string, string | ReadonlyArray<string>> = {}
  for (const parameter of text.split("&")) {
    if (parameter === "") continue
    const equals = parameter.indexOf("=")
    const name = equals === -1 ? parameter : parameter.slice(0, equals)
    const value = equals === -1 ? "" : parameter.slice(equals + 1)
    const previous = Object.hasOwn(query, name) ? query[name] : undefined
    query[name] = previous === undefined
      ? value
      : typeof previous === "string"
      ? [previous, value]
      : [...previous, value]
  }
  return query
}

/** The compiled path of an endpoint. */
export interface PathPattern {
  /** Whether the path has no parameters, so that it equals the pattern. */
  readonly isLiteral: boolean
  /** Returns the parameters of a matching path. */
  readonly match: (path: string) => Readonly<Record<string, string>> | undefined
}

const parameter = /^:(\w+)$/

/** Compiles a path whose segments are literals or parameters (`/users/:id`). Returns `undefined` for any other path. */
export const compilePath = (path: string): PathPattern | undefined => {
  const names: Array<string> = []
  const segments = path.split("/").map((segment) => {
    const name = parameter.exec(segment)?.[1]
    if (name !== undefined) names.push(name)
    return name === undefined ? /^[\w~-]*$/.test(segment) ? segment : undefined : "([^/]+)"
  })
  if (segments.includes(undefined)) return undefined
  const pattern = new RegExp(`^${segments.join("/")}$`)
  return {
    isLiteral: names.length === 0,
    match: (candidate) => {
      const match = pattern.exec(candidate)
      return match === null
        ? undefined
        : Object.fromEntries(names.map((name, index) => [name, match[index + 1] ?? ""]))
    }
  }
}
