import { Effect, Exit } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import { PreconditionFailed } from "../api/Errors.ts"

export interface Document {
  readonly contentType: string
  readonly content: string
  readonly headers?: Readonly<Record<string, string>>
}

/**
 * Whether `Accept-Encoding` allows gzip, by name or by `*`. The weight `q=0` forbids an encoding (RFC 9110 §12.5.3).
 */
const acceptsGzip = (acceptEncoding = ""): boolean => {
  const entries = acceptEncoding.split(",")
  const entry = entries.find((each) => /^\s*(?:x-)?gzip\s*(?:;|$)/i.test(each)) ??
    entries.find((each) => /^\s*\*/.test(each))
  return entry !== undefined && !/;\s*q\s*=\s*0(?:\.0*)?\s*$/i.test(entry)
}

const tagsOf = (header: string | undefined): ReadonlyArray<string> =>
  header?.split(",").map((entry) => entry.trim()) ?? []

/**
 * Whether the request has an `If-Match` with neither the current tag nor `*`. The comparison is strong: a weak tag
 * never matches (RFC 9110 §13.1.1).
 */
const isChanged = (ifMatch: string | undefined, etag: string): boolean =>
  ifMatch !== undefined && !tagsOf(ifMatch).some((tag) => tag === etag || tag === "*")

const changed = new PreconditionFailed({
  message: "The document does not match If-Match. Read it again, with the same Accept-Encoding."
})

const makeResponses = (content: Uint8Array, { contentType, headers }: Document, encoding?: "gzip") => {
  const etag = `"${createHash("sha256").update(content).digest("base64url").slice(0, 22)}"`
  // Send these headers with a 304 too: browsers copy the headers of a 304 to the cached response. Without them,
  // `no-store` of `fixedHeaders` would replace `no-cache` there.
  const cached = { vary: "Accept-Encoding", "cache-control": "private, no-cache", etag, ...headers }
  return {
    etag,
    full: HttpServerResponse.uint8Array(content, {
      contentType,
      headers: { ...encoding !== undefined && { "content-encoding": encoding }, ...cached }
    }),
    notModified: HttpServerResponse.empty({ status: 304, headers: cached })
  }
}

export const serve = (path: `/${string}`, render: Effect.Effect<Document>) =>
  HttpRouter.use(Effect.fnUntraced(function*(router) {
    const made = Effect.gen(function*() {
      const document = yield* render
      const plain = Buffer.from(document.content)
      const compressed = yield* Effect.promise(() => promisify(gzip)(plain, { level: 9 }))
      return { plain: makeResponses(plain, document), compressed: makeResponses(compressed, document, "gzip") }
    })
    const cached = yield* Effect.cachedWithTTL(made, (exit) => Exit.isSuccess(exit) ? Infinity : 0)
    // Uninterruptible, because `cachedWithTTL` would abandon the rendering if its only waiting client disconnected.
    const responses = Effect.uninterruptible(cached)
    yield* router.add("GET", path, ({ headers }) =>
      Effect.flatMap(responses, ({ compressed, plain }) => {
        const { etag, full, notModified } = acceptsGzip(headers["accept-encoding"]) ? compressed : plain
        if (isChanged(headers["if-match"], etag)) return Effect.fail(changed)
        const isKnown = tagsOf(headers["if-none-match"]).some((tag) => tag === "*" || tag.replace(/^W\//, "") === etag)
        return Effect.succeed(isKnown ? notModified : full)
      }))
  }))

export const serveJson = (path: `/${string}`, render: () => unknown) =>
  serve(path, Effect.sync(() => ({ contentType: "application/json", content: JSON.stringify(render()) })))
