/** The paths of the routes: how a URL names one, and what may be asked of it. */
import { Context } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { PathHeaders } from "../../api/PathHeaders.ts"

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

/** Whatever stands for the parameters of an endpoint's path. */
const patternOf = (path: string): RegExp => new RegExp(`^${path.replace(/:\w+/g, "[^/]*")}$`)

/** The methods that the path of a URL, or `*`, has operations for (RFC 9110 §10.2.1); none if there is no such path. */
export const methodsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
) => {
  const operations = pages.map((path) => ({ method: "GET", matches: (asked: string) => asked === path }))
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      const path = patternOf(endpoint.path)
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

/** The headers that every response to a request for the path of a URL carries. */
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
