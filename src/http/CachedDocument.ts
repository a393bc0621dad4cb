/** Serves a document that is the same for all clients: rendered and compressed once, and revalidated by its ETag. */
import { Deferred, Effect, Exit } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { gzip } from "node:zlib"

/** A document before it is compressed. */
export interface Document {
  readonly contentType: string
  readonly content: string
  /** Headers beside those of the representation, such as what a browser may do with the document. */
  readonly headers?: Readonly<Record<string, string>>
}

/** Returns whether a client accepts gzip (RFC 9110 §12.5.3). */
export const acceptsGzip = (acceptEncoding = ""): boolean => {
  const weights = new Map(
    acceptEncoding.split(",").map((entry): [string, number] => {
      const [coding = "", ...parameters] = entry.toLowerCase().split(";").map((part) => part.trim())
      const weight = parameters.find((parameter) => /^q\s*=/.test(parameter))?.replace(/^q\s*=\s*/, "")
      return [coding, weight === undefined ? 1 : Number(weight)]
    })
  )
  return (weights.get("gzip") ?? weights.get("x-gzip") ?? weights.get("*") ?? 0) > 0
}

/** Returns whether a client has the representation with this ETag (RFC 9110 §13.1.2). The comparison is weak. */
const hasRepresentation = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch !== undefined &&
  ifNoneMatch.split(",").some((entry) => ["*", etag].includes(entry.trim().replace(/^W\//, "")))

/** One representation of a document, and the response to a client that has it already. */
interface Representation {
  readonly etag: string
  readonly full: HttpServerResponse.HttpServerResponse
  readonly notModified: HttpServerResponse.HttpServerResponse
}

/** Makes a representation. Caches may store it, and must revalidate it before each use. */
const makeRepresentation = (
  content: Uint8Array,
  { contentType, headers }: Document,
  contentEncoding?: "gzip"
): Representation => {
  const etag = `"${createHash("sha256").update(content).digest("base64url").slice(0, 22)}"`
  const cached = {
    "vary": "Accept-Encoding",
    "cache-control": "private, no-cache",
    etag,
    // A browser takes the headers of a 304 over those that it has stored.
    ...headers
  }
  return {
    etag,
    full: HttpServerResponse.uint8Array(content, {
      contentType,
      headers: { ...contentEncoding !== undefined && { "content-encoding": contentEncoding }, ...cached }
    }),
    notModified: HttpServerResponse.empty({ status: 304, headers: cached })
  }
}

/**
 * Serves a document at `path`. The first request runs `render`, and later requests share its result. Clients that
 * accept gzip get it compressed, and clients that have it already get 304.
 */
export const serve = (path: `/${string}`, render: Effect.Effect<Document>) =>
  HttpRouter.use(Effect.fnUntraced(function*(router) {
    const make = Effect.gen(function*() {
      const document = yield* render
      const plain = Buffer.from(document.content)
      const compressed = yield* Effect.promise(() => promisify(gzip)(plain, { level: 9 }))
      return {
        plain: makeRepresentation(plain, document),
        compressed: makeRepresentation(compressed, document, "gzip")
      }
    })
    // The document is rendered in a fiber of the server. If the first client disconnects, the others do not render it
    // again.
    const scope = yield* Effect.scope
    let rendered: Deferred.Deferred<Effect.Success<typeof make>> | undefined
    const made = Effect.suspend(() => {
      if (rendered !== undefined) return Deferred.await(rendered)
      const rendering = Deferred.makeUnsafe<Effect.Success<typeof make>>()
      rendered = rendering
      const complete = Effect.onExit(make, (exit) => {
        // The next request tries again, for example to read a file.
        if (Exit.isFailure(exit)) rendered = undefined
        return Deferred.done(rendering, exit)
      })
      return Effect.andThen(Effect.forkIn(complete, scope), Deferred.await(rendering))
    })
    yield* router.add(
      "GET",
      path,
      Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) =>
        Effect.map(made, ({ compressed, plain }) => {
          const { etag, full, notModified } = acceptsGzip(headers["accept-encoding"]) ? compressed : plain
          return hasRepresentation(headers["if-none-match"], etag) ? notModified : full
        }))
    )
  }))

/** Returns the document with `value` as JSON. */
export const json = (value: unknown): Document => ({
  contentType: "application/json",
  content: JSON.stringify(value)
})
