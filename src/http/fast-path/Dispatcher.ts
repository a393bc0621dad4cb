/**
 * Serves requests on the fast path, from Node's request to Node's response. It passes all other requests to Effect's
 * HTTP server, with their request context.
 */
import { Cause, Context, Effect, Exit, Fiber } from "effect"
import type { HttpServerResponse } from "effect/http"
import type { IncomingMessage, ServerResponse } from "node:http"
import { PathHeaders } from "../../api/PathHeaders.ts"
import { FreeList } from "../../collections/FreeList.ts"
import { AdmissionControl } from "../admission/AdmissionControl.ts"
import { GracefulShutdown } from "../admission/GracefulShutdown.ts"
import { IncomingRequest } from "../node/IncomingRequest.ts"
import { clientClosedRequest, recordResponse } from "../response/AccessLog.ts"
import * as CommonHeaders from "../response/CommonHeaders.ts"
import * as ErrorResponse from "../response/ErrorResponse.ts"
import { addRequestContext, type ChargedDecision, RequestContext } from "../response/RequestContext.ts"
import * as ServerSpan from "../response/ServerSpan.ts"
import type { FastPath } from "./FastPath.ts"

/** The failure of an interrupted request. Effect's server responds to it with 503 if the client is still connected. */
const interrupted = Cause.die(new Cause.TimeoutError("The request was interrupted"))

/**
 * Serves a request with `fastPath` once there is a slot for it, or calls `next`. Requests in flight are interrupted
 * when the scope closes.
 */
export const make = Effect.fnUntraced(function*(fastPath: FastPath) {
  const commonHeaders = yield* CommonHeaders.make
  const draining = yield* GracefulShutdown
  const { all } = yield* AdmissionControl
  const newRequestContext = yield* RequestContext.making
  const running = new FreeList<Fiber.Fiber<boolean>>()
  yield* Effect.addFinalizer(() => Fiber.interruptAll(running))
  const context = yield* Effect.context()
  const run = Effect.runForkWith(context)
  const startSpan = yield* ServerSpan.makeStart

  const begin = (
    request: IncomingMessage,
    response: ServerResponse,
    requestContext: RequestContext,
    next: () => boolean
  ): void => {
    const { headers: { origin }, method = "", socket } = request
    const passToEffect = () => {
      // If the connection is closed, or the server has shut down, no response can be sent.
      if (socket.destroyed || !next()) run(recordResponse(request, requestContext, clientClosedRequest))
    }
    const isForEffect = draining.begun || all.isFull || socket.destroyed
    const call = isForEffect ? undefined : fastPath(request)
    if (call === undefined) return passToEffect()
    requestContext.route = call.endpoint.path
    const send = (
      { headers, status }: HttpServerResponse.HttpServerResponse,
      body: string | undefined,
      decision: ChargedDecision
    ): void => {
      const ofPath = Context.getOrUndefined(call.endpoint.annotations, PathHeaders)
      response.writeHead(
        status,
        commonHeaders({ requestId: requestContext.requestId, decision, method, origin }, headers, ofPath)
      )
      response.end(body)
    }
    /** Runs the call. Returns whether the response is sent. */
    const respond = Effect.flatMap(call.serve, (served) => {
      const httpResponse = ErrorResponse.addRequiredHeaders(served)
      const { decision } = requestContext
      const body = bodyOf(httpResponse)
      // Effect's server charges the request to its address if it is not charged to a key.
      if (decision === undefined) return Effect.succeed(false)
      if (body === null) {
        requestContext.outcome = Exit.succeed(httpResponse)
        return Effect.succeed(false)
      }
      return Effect.uninterruptible(Effect.suspend(() => {
        send(httpResponse, body, decision)
        return Effect.as(recordResponse(request, requestContext, httpResponse.status), true)
      }))
    })

    const end = (exit: Exit.Exit<boolean>): void => {
      if (Exit.isSuccess(exit) && exit.value) return
      if (Exit.isFailure(exit)) {
        requestContext.outcome = Exit.failCause(Cause.hasInterruptsOnly(exit.cause) ? interrupted : exit.cause)
      }
      passToEffect()
    }
    const fiber = Effect.runForkWith(call.addTo(addRequestContext(context, requestContext)))(respond)
    const exitAtOnce = fiber.pollUnsafe()
    if (exitAtOnce !== undefined) return end(exitAtOnce)
    requestContext.slot.start()
    const entry = running.add(fiber)
    response.on("close", () => {
      if (!response.writableEnded) fiber.interruptUnsafe()
    })
    fiber.addObserver((exit) => {
      requestContext.slot.end()
      running.remove(entry)
      end(exit)
    })
  }

  return (request: IncomingMessage, response: ServerResponse, next: () => boolean): void => {
    const { headers, method = "", socket, url = "" } = request
    const requestContext = newRequestContext(headers["x-request-id"])
    requestContext.span = startSpan({ headers, method, peer: socket.remoteAddress, url })
    if (request instanceof IncomingRequest) request.requestContext = requestContext
    all.startOrQueue(() => begin(request, response, requestContext, next))
  }
})

/** Returns the text of a response, or `null` if only Effect's server can send the response. */
const bodyOf = ({ body, cookies }: HttpServerResponse.HttpServerResponse): string | undefined | null =>
  Object.keys(cookies.cookies).length > 0
    ? null
    : body._tag === "Empty"
    ? undefined
    : body._tag === "Raw" && typeof body.body === "string"
    ? body.body
    : null
