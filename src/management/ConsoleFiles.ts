import { Array, Effect, FileSystem, Layer } from "effect"
import { join } from "node:path"
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
  ["/", "index.html", "text/html"],
  ["/console.js", "console.js", "text/javascript"],
  ["/console.css", "console.css", "text/css"]
] as const

export const paths: ReadonlyArray<string> = files.map(([path]) => path)

const notBuilt: CachedDocument.Document = {
  contentType: "text/plain; charset=utf-8",
  content: "The console is not built. Run `npm ci` or `npm run build:console`, then restart the service.\n"
}

const folder = join(import.meta.dirname, "../../dist/console")

export const layer = Layer.unwrap(Effect.map(FileSystem.FileSystem, (fs) => {
  const routes = Array.map(files, ([path, name, type]) => {
    const read = fs.readFileString(join(folder, name))
    const document = Effect.map(read, (content) => ({ contentType: `${type}; charset=utf-8`, content, headers }))
    return CachedDocument.serve(path, Effect.orElseSucceed(document, () => notBuilt))
  })
  return Layer.mergeAll(...routes)
}))
