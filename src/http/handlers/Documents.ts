/** The explorer page and the OpenAPI document: rendered and compressed once, then sent from the same memory. */
import { Deferred, Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiSwagger, OpenApi } from "effect/http-api"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import { openApiDocument } from "../../api/OpenApiDocument.ts"
import { PetstoreApi } from "../../api/PetstoreApi.ts"

/** Whether a client accepts gzip (RFC 9110 §12.5.3). */
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

/**
 * Serves a document. The first request runs `render`, and later requests share its result. Clients that accept gzip get
 * it compressed.
 */
const serve = <E, R>(
  path: `/${string}`,
  render: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
) =>
  HttpRouter.use(Effect.fnUntraced(function*(router) {
    const make = Effect.gen(function*() {
      const response = HttpServerResponse.toWeb(yield* render)
      const plain = Buffer.from(yield* Effect.promise(() => response.arrayBuffer()))
      const compressed = yield* Effect.promise(() => promisify(gzip)(plain))
      const contentType = response.headers.get("content-type") ?? ""
      const headers = { vary: "Accept-Encoding" }
      return {
        plain: HttpServerResponse.uint8Array(plain, { contentType, headers }),
        compressed: HttpServerResponse.uint8Array(compressed, {
          contentType,
          headers: { ...headers, "content-encoding": "gzip" }
        })
      }
    })
    // The document is rendered in a fiber of the server. If the first client disconnects, the others do not render it
    // again.
    const scope = yield* Effect.scope
    const rendered = yield* Deferred.make<Effect.Success<typeof make>, Effect.Error<typeof make>>()
    let isStarted = false
    const made = Effect.suspend(() => {
      if (isStarted) return Deferred.await(rendered)
      isStarted = true
      return Effect.andThen(
        Effect.forkIn(Effect.onExit(make, (exit) => Deferred.done(rendered, exit)), scope),
        Deferred.await(rendered)
      )
    })
    yield* router.add(
      "GET",
      path,
      Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) =>
        Effect.map(made, ({ compressed, plain }) =>
          acceptsGzip(headers["accept-encoding"]) ? compressed : plain))
    )
  }))

const openApi = serve("/openapi.json", Effect.sync(() => HttpServerResponse.jsonUnsafe(openApiDocument)))

const page = HttpApiSwagger.layer(PetstoreApi.annotate(OpenApi.Transform, () => openApiDocument), { path: "/docs" })

/** The explorer page, with its scripts and styles inside. */
const docs = serve(
  "/docs",
  Effect.scoped(Effect.gen(function*() {
    const request = HttpServerRequest.fromWeb(new Request("http://localhost/docs"))
    const response = yield* HttpRouter.toHttpEffect(page)
    return yield* Effect.provideService(response, HttpServerRequest.HttpServerRequest, request)
  }))
)

/** The routes of `/openapi.json` and `/docs`. */
export const layer = Layer.mergeAll(openApi, docs)
