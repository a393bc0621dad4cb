/** The paths of routes: how the router reads a URL, and the methods and headers of a path. */
import { Context } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { PathHeaders } from "../../api/PathHeaders.ts"

/** The router matches paths exactly as the contract writes them. */
export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, which returns 400. Node limits the size of the head.
  maxParamLength: 16_384
}

/** Returns the path of a URL as the router reads it. */
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

/** A pattern in which any segment stands for a parameter. */
const patternOf = (path: string): RegExp => new RegExp(`^${path.replace(/:\w+/g, "[^/]*")}$`)

/**
 * Returns the methods of the operations at the path of a URL, or of all for `*` (RFC 9110 §10.2.1). Returns none for an
 * unknown path.
 */
export const methodsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
) => {
  const operations = pages.map((path) => ({ method: "GET", matches: (requested: string) => requested === path }))
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      const path = patternOf(endpoint.path)
      operations.push({ method: endpoint.method, matches: (requested) => path.test(requested) })
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

/** Returns the headers that every response to a request for the path of a URL carries. */
export const pathHeadersOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
) => {
  const paths: Array<{ readonly path: RegExp; readonly headers: Readonly<Record<string, string>> }> = []
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      const headers = Context.getOrUndefined(endpoint.annotations, PathHeaders)
      if (headers !== undefined) paths.push({ path: patternOf(endpoint.path), headers })
    }
  })
  return (url: string): Readonly<Record<string, string>> | undefined => {
    const path = pathOf(url)
    return paths.find((candidate) => candidate.path.test(path))?.headers
  }
}
