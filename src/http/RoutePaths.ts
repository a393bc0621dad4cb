import { HttpApi, type HttpApiEndpoint, type HttpApiGroup } from "effect/http-api"
import { NotFound } from "../api/Errors.ts"

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // Allow path parameters up to the length of a request head, so that a long id gets a 400, not the router's 404.
  maxParamLength: 16_384
}

const pathOf = (url: string): string => {
  const [path = ""] = url.split(/[?;#]/, 1)
  try {
    return path.includes("%") ? decodeURI(path) : path
  } catch {
    return path
  }
}

export type RoutesAt = ReturnType<typeof makeRoutesAt>

/**
 * Returns a function that finds a URL's allowed methods and its endpoint. If several endpoints share the path, `method`
 * selects the endpoint. `pages` are further GET paths. The URL `*`, as in `OPTIONS *`, matches all endpoints.
 */
export const makeRoutesAt = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
) => {
  const routes: Array<{ readonly path: RegExp; readonly endpoint: HttpApiEndpoint.Top }> = []
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      routes.push({ path: new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]+")}$`), endpoint })
    }
  })
  return (url: string, method?: string) => {
    const path = pathOf(url)
    const found = routes.flatMap((route) => path === "*" || route.path.test(path) ? route.endpoint : [])
    const methods = [...pages.includes(path) ? ["GET"] : [], ...found.map((endpoint) => endpoint.method)]
      .flatMap((each) => each === "GET" ? ["GET", "HEAD"] : [each])
    const endpoint = found.find((each) => found.length === 1 || each.method === (method === "HEAD" ? "GET" : method))
    return methods.length === 0 ? { methods } : { methods: [...new Set([...methods, "OPTIONS"])], endpoint }
  }
}

export const noSuchPath = (routesAt: RoutesAt): NotFound => {
  const base = routesAt("/admin/session").methods.length > 0 ? "/admin" : "/v1"
  return new NotFound({ message: `No such path. Paths are case-sensitive and begin with ${base}.` })
}

export const missingPath = (url: string, routesAt: RoutesAt): NotFound => {
  const [path = ""] = url.split("?", 1)
  const trimmed = path.replace(/(?<!\/)\/+$/, "")
  return trimmed.startsWith("/") && routesAt(trimmed).methods.length > 0
    ? new NotFound({ message: `No such path. Use ${trimmed}.` })
    : noSuchPath(routesAt)
}
