/**
 * The middleware around all routes of a port. It makes the call of each request, maps failures to the Error body, and
 * completes the response. It runs no generator for a request, because every one passes here.
 */
import { Cause, Clock, Context, Effect, Layer, References } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { type ApiError, UnsupportedMediaType } from "../api/Errors.ts"
import { Call, CurrentCall, headerOf, headError, type RequestHead } from "./Call.ts"
import { makeForwarded } from "./ClientAddress.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import type { RoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

/** The differences between the API port and the management port. */
export interface Port {
  readonly routesAt: RoutesAt
  /** Whether the port serves the host that a request names. Without it, the port serves all. */
  readonly isAllowedHost?: (name: string) => boolean
  /** Adds the port's headers to a response. The API port also logs it, and may make it a 429. */
  readonly finish: (head: RequestHead, call: Call, response: Response) => Effect.Effect<Response>
  /** Runs when the request ended before its response: the client disconnected, or the process stops. */
  readonly abort: (head: RequestHead, call: Call) => Effect.Effect<void>
}

/** Whether the graceful shutdown has begun: each connection then closes after its response. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, { begun: boolean }>()("petstore/http/GracefulShutdown")
{
  static readonly layer = Layer.sync(GracefulShutdown, () => ({ begun: false }))
}

/** Returns `response` with exactly `headers`. `HttpServerResponse.setHeaders` copies them twice, which takes longer. */
export const withHeaders = (response: Response, headers: Readonly<Record<string, string>>): Response =>
  Object.assign(Object.create(Object.getPrototypeOf(response)), response, { headers })

/** Adds the headers that HTTP requires for a status, and replaces HttpApi's own 415. */
const addRequiredHeaders = (response: Response): Response => {
  switch (response.status) {
    case 401:
      return HttpServerResponse.setHeader(response, "www-authenticate", "Bearer")
    case 413:
      // The rest of the body is not read.
      return HttpServerResponse.setHeader(response, "connection", "close")
    case 415:
      // HttpApi responds in plain text to an empty body of another type.
      return ErrorResponses.make(new UnsupportedMediaType())
    default:
      return response
  }
}

/** Completes the response to a request that no route gets, because Node's parser or a check of its head rejects it. */
export const reject = (port: Port, head: RequestHead, call: Call, error: ApiError): Effect.Effect<Response> => {
  const allow = error.status === 405 && { allow: port.routesAt("*").methods.join(", ") }
  return port.finish(head, call, ErrorResponses.make(error, { connection: "close", ...allow }))
}

/** The middleware around all routes of `port`. */
export const layer = (port: Port) =>
  HttpRouter.middleware(
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const shutdown = yield* GracefulShutdown
      const forwarded = yield* makeForwarded

      const finish = (head: RequestHead, call: Call, response: Response) => {
        const own = addRequiredHeaders(response)
        const complete = shutdown.begun ? withHeaders(own, { ...own.headers, connection: "close" }) : own
        return port.finish(head, call, complete)
      }

      return (httpEffect) =>
        forwarded(Effect.withFiber((fiber) => {
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const call = new Call(headerOf(request, "x-request-id"), clock.monotonicTimeNanosUnsafe())
          // The server restores the context when the request ends.
          fiber.setContext(fiber.context.pipe(
            Context.add(CurrentCall, call),
            Context.add(References.CurrentLogAnnotations, { requestId: call.requestId })
          ))
          const error = headError(request, port.isAllowedHost)
          return Effect.matchCauseEffect(error === undefined ? httpEffect : Effect.die(error), {
            onSuccess: (response) => {
              call.freeSlot()
              return finish(request, call, response)
            },
            onFailure: (cause) => {
              call.freeSlot()
              if (!Cause.hasInterruptsOnly(cause)) {
                const response = ErrorResponses.responseOf(cause, request, call, port.routesAt)
                return Effect.flatMap(response, (made) => finish(request, call, made))
              }
              return Effect.andThen(port.abort(request, call), Effect.failCause(cause))
            }
          })
        }))
    }),
    { global: true }
  )
