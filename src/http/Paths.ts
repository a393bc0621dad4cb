/** The paths of the routes: how a URL names one, and what may be asked of it. */
import { HttpApi, type HttpApiGroup } from "effect/http-api"

/** How strictly: a path is what the contract writes. */
export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, to be answered 400: Node bounds the head of a request.
  maxParamLength: 16_384
}

/** The path of a URL, as the router reads it. */
export const pathOf = (url: string): string => {
  const end = url.search(/[?;#]/)
  const path = end === -1 ? url : url.slice(0, end)
  if (!path.includes("%")) return path
  try {
    return decodeURI(path)
  } catch {
    return path
  }
}

/** The methods that the path of a URL, or `*`, has operations for (RFC 9110 §10.2.1); none if there is no such path. */
export const methodsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
) => {
  const operations = pages.map((path) => ({ method: "GET", matches: (asked: string) => asked === path }))
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      const path = new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]*")}$`)
      operations.push({ method: endpoint.method, matches: (asked) => path.test(asked) })
    }
  })
  return (url: string): ReadonlyArray<string> => {
    const path = pathOf(url)
    const methods = operations
      .filter((operation) => path === "*" || operation.matches(path))
      .flatMap(({ method }) => method === "GET" ? ["GET", "HEAD"] : [method])
    return methods.length === 0 ? [] : [...new Set([...methods, "OPTIONS"])]
  }
}
