import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, type HttpApiGroup, OpenApi } from "effect/http-api"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import * as CachedDocument from "./CachedDocument.ts"
import * as ExplorerPage from "./ExplorerPage.ts"
import { documentPaths } from "./RoutePaths.ts"

export const paths = Object.values(documentPaths)

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
    HttpRouter.add("GET", documentPaths.root, HttpServerResponse.redirect(documentPaths.docs)),
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
