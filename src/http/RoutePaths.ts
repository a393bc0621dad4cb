import { HttpApi, type HttpApiEndpoint, type HttpApiGroup } from "effect/http-api"
import { basePaths } from "../api/Brand.ts"
import { closestOf } from "../api/DescribeIssue.ts"
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

/**
 * Paths of the API port (`documentPaths`) and of the management port (`reportPaths`) that no `HttpApi` declares. Those
 * of the console are in `ConsoleFiles.ts`.
 */
export const documentPaths = { root: "/", openApi: "/openapi.json", docs: "/docs" } as const
export const reportPaths = { health: "/healthz", readiness: "/readyz", metrics: "/metrics" } as const

/** The name and the paths of a port. On the other port, the 404 for one of these paths names this port. */
export interface OtherPort {
  readonly name: string
  readonly paths: ReadonlyArray<string>
}

export const apiPort: OtherPort = {
  name: "the API port",
  paths: [basePaths.api, documentPaths.openApi, documentPaths.docs]
}
export const managementPort: OtherPort = {
  name: "the management port (MANAGEMENT_PORT)",
  paths: [basePaths.admin, ...Object.values(reportPaths)]
}

export type RoutesAt = ReturnType<typeof makeRoutesAt>

const segmentsOf = (path: string): ReadonlyArray<string> => path.split("/").filter((segment) => segment !== "")

/**
 * Corrects typos in `path`: replaces each segment by the one of `route` at the same place, but keeps it where `route`
 * has a parameter such as `:id`. Returns `undefined` if a replaced segment does not resemble its replacement, or if the
 * numbers of segments differ.
 */
const correct = (path: string, route: string): string | undefined => {
  const [sent, known] = [segmentsOf(path), segmentsOf(route)]
  if (sent.length !== known.length) return undefined
  const corrected = known.map((segment, i) => segment.startsWith(":") ? sent[i] : closestOf(sent[i] ?? "", [segment]))
  return corrected.includes(undefined) ? undefined : `/${corrected.join("/")}`
}

const maxShownPath = 100

/**
 * Returns a function that finds the allowed methods and the endpoint of a URL. If several endpoints share the path,
 * `method` selects the endpoint. `pages` are paths outside `api` that allow GET. The URL `*`, as in `OPTIONS *`,
 * matches all endpoints.
 *
 * Its property `suggest` returns a sentence for the 404 of an unknown path: that `otherPort` has the path or one above
 * it, or else the path that the client probably meant. It returns an empty text if it finds neither. A path of over 100
 * characters is not corrected.
 */
export const makeRoutesAt = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  pages: ReadonlyArray<string>,
  otherPort?: OtherPort
) => {
  const routes: Array<{ readonly path: RegExp; readonly endpoint: HttpApiEndpoint.Top }> = []
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint }) {
      routes.push({ path: new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]+")}$`), endpoint })
    }
  })
  const [base = ""] = segmentsOf(routes[0]?.endpoint.path ?? "")
  const known = [...pages, ...routes.map(({ endpoint }) => endpoint.path)]

  const at = (url: string, method?: string) => {
    const path = pathOf(url)
    const found = routes.flatMap((route) => path === "*" || route.path.test(path) ? route.endpoint : [])
    const methods = [...pages.includes(path) ? ["GET"] : [], ...found.map((endpoint) => endpoint.method)]
      .flatMap((each) => each === "GET" ? ["GET", "HEAD"] : [each])
    const endpoint = found.find((each) => found.length === 1 || each.method === (method === "HEAD" ? "GET" : method))
    return methods.length === 0 ? { methods } : { methods: [...new Set([...methods, "OPTIONS"])], endpoint }
  }

  const suggest = (url: string): string => {
    const path = pathOf(url)
    const elsewhere = otherPort?.paths.find((each) => path === each || path.startsWith(`${each}/`))
    if (elsewhere !== undefined) return ` ${elsewhere} is on ${otherPort?.name}.`
    const parent = `/${segmentsOf(path).join("/")}/`
    const [closest] = path.length > maxShownPath ?
      [] :
      known.flatMap((route) =>
        correct(path, route) ?? correct(`/${base}${path}`, route) ?? (route.startsWith(parent) ? route : [])
      )
    return closest === undefined ? "" : ` Did you mean ${closest}?`
  }

  return Object.assign(at, { base: `/${base}`, suggest })
}

export const noSuchPath = (routesAt: RoutesAt, url: string): NotFound =>
  new NotFound({
    message: `No such path.${routesAt.suggest(url)} Paths are case-sensitive and begin with ${routesAt.base}.`
  })

export const missingPath = (url: string, routesAt: RoutesAt): NotFound => {
  const [path = ""] = url.split("?", 1)
  const trimmed = path.replace(/(?<!\/)\/+$/, "")
  return trimmed.startsWith("/") && routesAt(trimmed).methods.length > 0
    ? new NotFound({ message: `No such path. Use ${trimmed}.` })
    : noSuchPath(routesAt, url)
}
