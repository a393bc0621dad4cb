import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiScalar, OpenApi } from "effect/http-api"
import * as Brand from "../api/Brand.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as CachedDocument from "./CachedDocument.ts"

const links = { docs: "/docs", openapi: "/openapi.json", [Brand.collection]: `/v1/${Brand.collection}` } as const

export const paths = ["/", links.openapi, links.docs]

const root = HttpRouter.add(
  "GET",
  "/",
  Effect.map(HttpServerRequest.HttpServerRequest, (request) => {
    const headers = { vary: "Accept" }
    return request.headers.accept?.includes("text/html") === true
      ? HttpServerResponse.redirect(links.docs, { headers })
      : HttpServerResponse.jsonUnsafe({ name: Brand.title, links }, { headers })
  })
)

const openApi = CachedDocument.serveJson(links.openapi, () => OpenApi.fromApi(PetstoreApi))

/**
 * A script for the page `/docs`. Scalar parses responses with `JSON.parse`, which rounds integers beyond 2^53. The
 * script replaces `JSON.parse` with a version that keeps all digits.
 */
const exactIntegers = `<script>
  const { parse } = JSON
  const keepDigits = (_, value, { source }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\\d+$/.test(source) ? JSON.rawJSON(source) : value
  JSON.parse = (text, reviver) => parse(text, reviver ?? (/\\d{16}/.test(text) ? keepDigits : undefined))
</script>`

const customCss = `
  a[href^="https://www.scalar.com"], .ascii-art { display: none }
  .code-snippet > .scalar-code-block { min-width: 0; width: 100% }
  .code-snippet .line, .scalar-app .markdown pre, .scalar-app .markdown pre code {
    white-space: pre-wrap;
    overflow-wrap: anywhere;
  }
`

/**
 * Effect's `ScalarConfig` declares only the first three options. TypeScript accepts the others in a constant, but not
 * in an object literal that is passed directly.
 */
const scalar = {
  withDefaultFonts: false,
  defaultOpenAllTags: true,
  customCss,
  servers: [{ url: "/v1", description: "This deployment" }],
  orderSchemaPropertiesBy: "preserve",
  orderRequiredPropertiesFirst: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  telemetry: false
}

const page = HttpApiScalar.layer(PetstoreApi, { path: links.docs, scalar })

const contentSecurityPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
  "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const docs = CachedDocument.serve(
  links.docs,
  Effect.scoped(Effect.gen(function*() {
    const request = HttpServerRequest.fromWeb(new Request("http://localhost/docs"))
    const httpEffect = yield* HttpRouter.toHttpEffect(page)
    const response = yield* Effect.provideService(httpEffect, HttpServerRequest.HttpServerRequest, request)
    const html = yield* Effect.promise(() => HttpServerResponse.toWeb(response).text())
    // Cut the meta description after its first line, and add an empty icon to avoid requests for /favicon.ico.
    const content = html.replaceAll(/(description" content="[^\n"]*)[^"]*/g, "$1")
      .replace("<html>", `<html lang="en">`)
      .replace("<head>", () => `<head><link rel="icon" href="data:,">${exactIntegers}`)
    const headers = { "content-security-policy": contentSecurityPolicy }
    return { contentType: "text/html; charset=utf-8", content, headers }
  })).pipe(Effect.orDie)
)

export const layer = Layer.mergeAll(root, openApi, docs)
