/** Serves the console, the web page for operators that `npm run build:console` bundles. */
import { Array, Effect, Layer } from "effect"
import { readFile } from "node:fs/promises"
import * as CachedDocument from "../http/CachedDocument.ts"

const headers = {
  "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-frame-options": "DENY",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin"
}

const files = [
  { path: "/", name: "index.html", contentType: "text/html; charset=utf-8" },
  { path: "/console.js", name: "console.js", contentType: "text/javascript; charset=utf-8" },
  { path: "/console.css", name: "console.css", contentType: "text/css; charset=utf-8" }
] as const

export const paths: ReadonlyArray<string> = files.map(({ path }) => path)

const notBuilt: CachedDocument.Document = {
  contentType: "text/plain; charset=utf-8",
  content: "The console is not built. Run `npm ci` or `npm run build:console`, then restart the service.\n"
}

const folder = new URL("../../dist/console/", import.meta.url)

const routes = Array.map(files, ({ contentType, name, path }) => {
  const read = Effect.tryPromise(() => readFile(new URL(name, folder), "utf8"))
  const document = Effect.map(read, (content) => ({ contentType, content, headers }))
  return CachedDocument.serve(path, Effect.orElseSucceed(document, () => notBuilt))
})

export const layer = Layer.mergeAll(...routes)
