/** The API port without a server: the contract with its handlers and middleware, and the port's responses. */
import { type Config, Context, Effect, Layer } from "effect"
import { HttpRouter, HttpServer, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PathHeaders } from "../api/PathHeaders.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"
import { clientAborted, recordResponse } from "./AccessLog.ts"
import type { Call, ChargedDecision } from "./Call.ts"
import { clientNetwork } from "./ClientAddress.ts"
import * as CommonHeaders from "./CommonHeaders.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import type { GracefulShutdown } from "./GracefulShutdown.ts"
import * as Middleware from "./Middleware.ts"
import * as PetHandlers from "./PetHandlers.ts"
import * as RateLimiting from "./RateLimiting.ts"
import { headerOf, type RequestHead } from "./RequestHead.ts"
import * as Responses from "./Responses.ts"
import { makeRoutesAt, pathOf } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

/** The pages beside the operations. */
const pages = ["/", "/openapi.json", "/docs", "/favicon.ico"]

/** Makes the part of the responses that differs from the management port: charges, headers and the access log. */
export const makePort = Effect.gen(function*(): Effect.gen.Return<
  Responses.Port,
  Config.ConfigError,
  RateLimiter | GracefulShutdown
> {
  const limiter = yield* RateLimiter
  const { headersOf, mayCall } = yield* CommonHeaders.make
  const routesAt = makeRoutesAt(PetstoreApi, pages)

  const send = (head: RequestHead, call: Call, decision: ChargedDecision, response: Response) => {
    const { endpoint, requestId } = call
    const ofPath = endpoint === undefined
      ? routesAt(head.url).headers
      : Context.getOrUndefined(endpoint.annotations, PathHeaders)
    const facts = { requestId, decision, method: head.method, origin: headerOf(head, "origin") }
    const headers = headersOf(facts, response.headers, ofPath)
    return Effect.as(recordResponse(head, call, response.status), Responses.withHeaders(response, headers))
  }

  /** Charges a request without a valid key to its address. */
  const charge = (head: RequestHead, call: Call, response: Response) => {
    const isPreflight = response.status === 204 && mayCall(headerOf(head, "origin")) &&
      headerOf(head, "access-control-request-method") !== undefined
    const network = `address:${clientNetwork(head)}` as const
    // The pages have a limit of their own, so that a visitor has all requests left for the first calls.
    const caller = pages.includes(pathOf(head.url)) ? `${network} pages` as const : network
    return Effect.flatMap(
      // A fault is the service's, and a browser repeats a preflight for each URL: neither is charged.
      RateLimiting.chargeAddress(limiter, caller, response.status >= 500 || isPreflight),
      (decision) =>
        send(
          head,
          call,
          decision,
          // A rejected client must not hold one of the limited connections.
          decision.allowed
            ? response
            : ErrorResponses.make(RateLimiting.limitExceeded(decision), { connection: "close" })
        )
    )
  }

  return {
    routesAt,
    finish: (head, call, response) =>
      call.decision === undefined ? charge(head, call, response) : send(head, call, call.decision, response),
    abort: (head, call) => recordResponse(head, call, clientAborted)
  }
})

/** The icon of the site, which browsers request with every page. There is none. */
const noIcon = HttpRouter.add("GET", "/favicon.ico", HttpServerResponse.empty({ status: 204 }))

const operations = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(PetHandlers.layer),
  Layer.provide(Middleware.layer),
  Layer.provide(HttpServer.layerServices)
)

/** The routes of the operations, with the middleware of the port around them and around all other routes. */
export const layer = (port: Responses.Port) => Layer.mergeAll(operations, noIcon, Responses.layer(port))
