import { Context } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { NotFound } from "../api/Errors.ts"
import { PathHeaders } from "../api/OperationMiddleware.ts"

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // Allow path parameters as long as a request head, so that a long id gets a 400, not the router's 404.
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

export type RoutesAt = (
  url: string
) => { readonly methods: ReadonlyArray<string>; readonly headers?: Readonly<Record<string, string>> | undefined }

/**
 * Returns a function that finds the methods that a URL allows. `pages` are GET paths outside the contract. The URL `*`,
 * as in `OPTIONS *`, allows all methods of the contract.
 */
export const makeRoutesAt = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
): RoutesAt => {
  const routes: Array<{ method: string; path: RegExp; headers?: Readonly<Record<string, string>> | undefined }> = []
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint: { annotations, method, path } }) {
      const pattern = new RegExp(`^${path.replace(/:\w+/g, "[^/]+")}$`)
      routes.push({ method, path: pattern, headers: Context.getOrUndefined(annotations, PathHeaders) })
    }
  })
  return (url) => {
    const path = pathOf(url)
    const found = routes.filter((route) => path === "*" || route.path.test(path))
    const methods = [...pages.includes(path) ? ["GET"] : [], ...found.map(({ method }) => method)]
      .flatMap((method) => method === "GET" ? ["GET", "HEAD"] : [method])
    return methods.length === 0
      ? { methods }
      : { methods: [...new Set([...methods, "OPTIONS"])], headers: path === "*" ? undefined : found[0]?.headers }
  }
}

export const noSuchPath = (routesAt: RoutesAt): NotFound => {
  const base = routesAt("/admin/session").methods.length > 0 ? "/admin" : "/v1"
  return new NotFound({ message: `No such path. Paths are case-sensitive and begin with ${base}.` })
}

/** Suggests the path without trailing slashes, if that path exists. */
export const missingPath = (url: string, routesAt: RoutesAt): NotFound => {
  const [path = ""] = url.split("?", 1)
  const trimmed = path.replace(/(?<!\/)\/+$/, "")
  return trimmed.startsWith("/") && routesAt(trimmed).methods.length > 0
    ? new NotFound({ message: `No such path. Use ${trimmed}.` })
    : noSuchPath(routesAt)
}
