/** The routes of a port: which methods a URL allows, and which headers its responses carry. */
import { Context } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { PathHeaders } from "../api/OperationMiddleware.ts"

export const routerConfig = {
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false,
  // An id of any length reaches its endpoint, which returns 400. Node limits the size of the head.
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

/** The methods of a path (none if it is unknown), and the headers of all its responses. */
export type RoutesAt = (
  url: string
) => { readonly methods: ReadonlyArray<string>; readonly headers?: Readonly<Record<string, string>> | undefined }

/** `pages` are paths beside the operations. The URL `*` has all methods. */
export const makeRoutesAt = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>
): RoutesAt => {
  const routes: Array<{ method: string; path: RegExp; headers?: Readonly<Record<string, string>> | undefined }> = []
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint: { annotations, method, path } }) {
      // Any segment stands for a parameter.
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
