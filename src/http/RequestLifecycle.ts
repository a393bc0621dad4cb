/**
 * Middleware for all routes of a port: provides the request context, turns failures into responses with the Error body,
 * and passes responses to `hooks.completeResponse`. `README.md` lists all steps of a request, in their order. Hot path:
 * avoids `Effect.gen`.
 */
import { Cause, Clock, Context, Effect, Layer, Ref, References, Tracer, type Types } from "effect"
import { Headers, HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { type ApiError, MethodNotAllowed } from "../api/Errors.ts"
import { acceptedCodings, challenge } from "../api/ResponseHeaders.ts"
import * as ErrorResponses from "./ErrorResponses.ts"
import { makeRequestContext, RequestContext } from "./RequestContext.ts"
import {
  applyForwardedFor,
  bearerOf,
  headerOf,
  headError,
  type RequestHead,
  type TrustedProxies
} from "./RequestHead.ts"
import { routerConfig, type RoutesAt } from "./RoutePaths.ts"

type Response = HttpServerResponse.HttpServerResponse

/**
 * What differs between the ports: their routes, checks and headers. `ApiRoutes.makeHooks` makes it for the API port.
 * For the management port, `AdminHandlers.makeHooks` makes it, and `ManagementServer.ts` adds the proxies and checks.
 */
export interface PortHooks {
  readonly routesAt: RoutesAt
  readonly trustedProxies: TrustedProxies
  readonly isAllowedHost?: (name: string) => boolean
  /** Whether a request has no span. */
  readonly isUntraced?: (request: HttpServerRequest.HttpServerRequest) => boolean
  /**
   * Adds the port's headers. On the API port, also logs the request, and may charge it to the client's address, if no
   * API key was charged. That can make the response a 429.
   */
  readonly completeResponse: (head: RequestHead, context: RequestContext, response: Response) => Effect.Effect<Response>
  /** Runs instead of `completeResponse` for a request whose connection closed before it had a response. */
  readonly abort: (head: RequestHead, context: RequestContext) => Effect.Effect<void>
}

/** Whether the process is shutting down. If so, responses close their connections. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, Ref.Ref<boolean>>()("petstore/http/GracefulShutdown")
{
  static readonly layer = Layer.effect(GracefulShutdown, Ref.make(false))
}

/**
 * Returns a copy of `response` that has only the given headers. Later ones replace earlier ones. Hot path: avoids
 * `HttpServerResponse.setHeaders`, which would copy the headers twice: a get would allocate 8 % more bytes
 * (docs/performance.md).
 */
export const withHeaders = (
  response: Response,
  ...headers: ReadonlyArray<Readonly<Record<string, string>> | undefined>
): Response =>
  Object.assign(Object.create(Object.getPrototypeOf(response)), response, {
    headers: Object.assign(Headers.fromRecordUnsafe({}), ...headers)
  })

const addHeadersOfStatus = (head: RequestHead, response: Response): Response => {
  if (response.status === 413) return HttpServerResponse.setHeader(response, "connection", "close")
  if (response.status === 415 && headerOf(head, "content-encoding") !== undefined) {
    return HttpServerResponse.setHeaders(response, acceptedCodings)
  }
  if (response.status !== 401) return response
  const { invalid, missing } = challenge
  return HttpServerResponse.setHeader(response, "www-authenticate", bearerOf(head) === undefined ? missing : invalid)
}

/** Makes the response to a request that never reaches the routes, such as malformed HTTP or `CONNECT`. */
export const reject = (hooks: PortHooks) => (error: ApiError, head: RequestHead) =>
  Effect.flatMap(Effect.clockWith((clock) => clock.monotonicTimeNanos), (startedAtNs) => {
    // For an unknown method, Node does not report the path, so `allow` lists the methods of all paths together.
    const allow = hooks.routesAt("*").methods.join(", ")
    const context = makeRequestContext(headerOf(head, "x-request-id"), startedAtNs)
    const message = `${error.message} Use one of ${allow}.`
    const response = error.status === 405
      ? ErrorResponses.make(context, new MethodNotAllowed({ message }), { connection: "close", allow })
      : ErrorResponses.make(context, error, { connection: "close" })
    return hooks.completeResponse(head, context, response)
  })

export const layer = (hooks: PortHooks) =>
  HttpRouter.middleware<{ handles: ApiError }>()(
    Effect.gen(function*() {
      const shutdown = yield* GracefulShutdown
      const isTraced = (yield* Tracer.Tracer) !== Tracer.nativeTracer
      const forward = applyForwardedFor(hooks.trustedProxies)

      const closeIfEnding = (response: Response) =>
        Ref.getUnsafe(shutdown) ? HttpServerResponse.setHeader(response, "connection", "close") : response
      const complete = (head: RequestHead, context: RequestContext, response: Response) =>
        hooks.completeResponse(head, context, closeIfEnding(addHeadersOfStatus(head, response)))

      return (httpEffect) =>
        forward(Effect.withFiber((fiber) => {
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const startedAtNs = fiber.getRef(Clock.Clock).monotonicTimeNanosUnsafe()
          const span = isTraced ? Context.getOrUndefined(fiber.context, Tracer.ParentSpan) : undefined
          const context = makeRequestContext(headerOf(request, "x-request-id"), startedAtNs, span)
          const { requestId } = context
          // Hot path: `setContext` costs less than `Effect.provideContext` (docs/performance.md), and is safe, because
          // the context is restored after each request: by Effect's server, and in `testing.ts` by
          // `Effect.provideService`.
          fiber.setContext(fiber.context.pipe(
            Context.add(RequestContext, context),
            Context.add(References.CurrentLogAnnotations, { requestId, ...span && { traceId: span.traceId } })
          ))
          const error = headError(request, hooks)
          const responded = Effect.matchCauseEffect(error === undefined ? httpEffect : Effect.fail(error), {
            onSuccess: (response) => complete(request, context, response),
            onFailure: (cause): Effect.Effect<Response, Types.unhandled> => {
              const isAborted = cause.reasons.some(({ annotations }) =>
                annotations.has(HttpServerError.ClientAbort.key)
              )
              // Otherwise, the end of the shutdown interrupted the request: `responseOf` makes a 503.
              if (Cause.hasInterruptsOnly(cause) && (isAborted || !Ref.getUnsafe(shutdown))) {
                const interrupts = Cause.fromReasons<never>(cause.reasons.filter(Cause.isInterruptReason))
                return Effect.andThen(hooks.abort(request, context), Effect.failCause(interrupts))
              }
              const response = ErrorResponses.responseOf(cause, request, context, hooks.routesAt)
              return Effect.flatMap(response, (made) => complete(request, context, made))
            }
          })
          return Effect.catchDefect(
            responded,
            (defect) =>
              Effect.map(ErrorResponses.responseOf(Cause.die(defect), request, context, hooks.routesAt), closeIfEnding)
          )
        }))
    }),
    { global: true }
  )

/** Names a span as OpenTelemetry does: by the method and the endpoint's path, or without an endpoint by the method. */
export const spanNameOf = ({ routesAt }: PortHooks) =>
(
  { method, url }: Pick<HttpServerRequest.HttpServerRequest, "method" | "url">
): string => {
  const { endpoint } = routesAt(url, method)
  return endpoint === undefined ? method : `${method} ${endpoint.path}`
}

export const toHttpEffect = <A, E, R>(routes: Layer.Layer<A, E, R>, hooks: PortHooks) =>
  HttpRouter.toHttpEffect(Layer.merge(routes, layer(hooks))).pipe(
    Effect.provideService(HttpRouter.RouterConfig, routerConfig)
  )
