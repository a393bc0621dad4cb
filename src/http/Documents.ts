import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { type HttpApi, type HttpApiGroup, OpenApi } from "effect/http-api"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import * as Brand from "../api/Brand.ts"
import * as CachedDocument from "./CachedDocument.ts"
import * as ExplorerPage from "./ExplorerPage.ts"
import { documentPaths } from "./RoutePaths.ts"

const links = {
  docs: documentPaths.docs,
  openapi: documentPaths.openApi,
  [Brand.collection]: `${Brand.basePaths.api}/${Brand.collection}`
} as const

export const paths = Object.values(documentPaths)

const root = HttpRouter.add(
  "GET",
  documentPaths.root,
  Effect.map(HttpServerRequest.HttpServerRequest, (request) => {
    const headers = { vary: "Accept" }
    return request.headers.accept?.includes("text/html") === true
      ? HttpServerResponse.redirect(links.docs, { headers })
      : HttpServerResponse.jsonUnsafe({ name: Brand.title, links }, { headers })
  })
)

const contentSecurityPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
  "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const explorerFile = join(import.meta.dirname, "../../dist/docs/openapi-explorer.js")

const notBuilt: CachedDocument.Document = {
  contentType: "text/plain; charset=utf-8",
  content: "This page is not built. Run `npm ci` or `npm run build:console`, then restart the service. " +
    `The OpenAPI document is at ${documentPaths.openApi}.\n`
}

export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) =>
  Layer.mergeAll(
    root,
    CachedDocument.serveJson(documentPaths.openApi, () => OpenApi.fromApi(api)),
    CachedDocument.serve(
      documentPaths.docs,
      Effect.tryPromise(() => readFile(explorerFile, "utf8")).pipe(
        Effect.map((explorer) => ({
          contentType: "text/html; charset=utf-8",
          content: ExplorerPage.render(OpenApi.fromApi(api), explorer),
          headers: { "content-security-policy": contentSecurityPolicy }
        })),
        Effect.orElseSucceed(() => notBuilt)
      )
    )
  )
