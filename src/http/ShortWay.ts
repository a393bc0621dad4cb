/**
 * The short way to an answer: what the HttpApi answers to the plainest requests, from Node's request to Node's response,
 * without Effect's own, its routing and its walk through schemas. Whatever is out of the
 * ordinary goes the long way, and so does all that is refused but for the limits; a test holds the two together.
 */
import { Cause, Clock, Effect, Exit, Fiber, Redacted, Scope, Tracer } from "effect"
import { isUtf8 } from "node:buffer"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { getPetDeprecation, type ListQuery, type NewPet, type Pet } from "../api/Pets.ts"
import { ApiKeys } from "../ApiKeys.ts"
import { PetRepository } from "../PetRepository.ts"
import type { Decision } from "../rate-limit/Rule.ts"
import { RateLimiter } from "../RateLimiter.ts"
import * as Cors from "./Cors.ts"
import { Draining } from "./Draining.ts"
import * as Edge from "./Edge.ts"
import { Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as PetQuery from "./PetQuery.ts"
import * as Pets from "./Pets.ts"
import { petsText, petText, readNewPet } from "./PetText.ts"
import * as RateLimit from "./RateLimit.ts"
import { clientClosedRequest, report } from "./Report.ts"

/** An answer to a plain request; the body is JSON. */
interface Answer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>> | undefined
}

/** What answers a request once it is admitted; nothing where it shows only then that it is not plain. */
interface Operation {
  /** The path of the endpoint as the contract writes it. */
  readonly route: string
  /** What all its answers carry. */
  readonly headers?: Readonly<Record<string, string>>
  readonly answer: Effect.Effect<Answer | undefined>
}

/** What the last request of a connection came with. */
interface Credential {
  readonly authorization: string
  readonly caller: ReturnType<ApiKeys["Service"]["verify"]>
}

const bearer = "Bearer "
const listPath = "/v1/pets"
const getPath = /^\/v1\/pets\/(\d{1,18})$/

const utf8 = new TextDecoder()

/**
 * Answers a request, or leaves it, with what was done of it so far, to `longWay`. What it answers is under way for as
 * long as the scope lasts.
 */
export const make = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const limiter = yield* RateLimiter
  const repository = yield* PetRepository
  const clock = yield* Clock.Clock
  const cors = yield* Cors.make
  const draining = yield* Draining
  const underWay = yield* Edge.UnderWay
  const requestIdOf = yield* Edge.requestIds
  const scope = yield* Scope.Scope
  const run = Effect.runForkWith(yield* Effect.context())
  // Only the long way makes the spans of a request.
  const isTraced = (yield* Tracer.Tracer) !== Tracer.nativeTracer

  /** The animal with these digits. */
  const get = (digits: string): Operation => ({
    route: "/v1/pets/:petId",
    headers: Edge.getPetHeaders,
    answer: Effect.match(Pets.one(repository, BigInt(digits)), {
      onSuccess: (pet) => ({ status: 200, body: petText(pet) }),
      onFailure: (missing) => ({ status: missing.status, body: Failure.bodyOf(missing) })
    })
  })

  /** The bodies of first pages that the repository gave before, and mostly gives again: they are asked for most. */
  const firstPages = new WeakMap<ReadonlyArray<Pet>, string>()

  const list = (query: ListQuery): Operation => ({
    route: listPath,
    answer: Effect.map(Pets.look(repository, query), (found) => {
      const { next, pets } = Pets.pageOf(query, found)
      const body = firstPages.get(found) ?? petsText(pets)
      if (query.cursor === undefined) firstPages.set(found, body)
      return { status: 200, body, headers: next && { link: `<${listPath}${PetQuery.write(next)}>; rel="next"` } }
    })
  })

  const create = (request: IncomingMessage, length: number): Operation => ({
    route: listPath,
    answer: Effect.flatMap(petOf(request, length), (pet) =>
      pet === undefined
        ? Effect.undefined
        : Effect.map(Effect.orDie(repository.create(pet)), (created) => ({
          status: 201,
          body: petText(created),
          headers: { location: `${listPath}/${created.id}` }
        })))
  })

  /** What a request asks for, if it is plain as far as its head tells. */
  const operationOf = (request: IncomingMessage): Operation | undefined => {
    const { headers: sent, method, url = "" } = request
    if (method === "GET" && sent["content-length"] === undefined) {
      const [, digits] = getPath.exec(url) ?? []
      if (digits !== undefined) {
        return clock.currentTimeMillisUnsafe() < getPetDeprecation.sunset.getTime() ? get(digits) : undefined
      }
      const query = url.startsWith(listPath) ? PetQuery.read(url.slice(listPath.length)) : undefined
      return query && list(query)
    }
    const length = Number(sent["content-length"])
    return method === "POST" && url === listPath && length > 0 && length <= Failure.maxBodyBytes &&
        sent["content-type"] === "application/json" && sent["content-encoding"] === undefined &&
        sent["idempotency-key"] === undefined
      ? create(request, length)
      : undefined
  }

  const credentials = new WeakMap<Socket, Credential>()

  /** Who the caller is: a connection mostly comes with the same key again. */
  const callerOf = (socket: Socket, authorization: string): Credential["caller"] => {
    const known = credentials.get(socket)
    if (known?.authorization === authorization) return known.caller
    const caller = apiKeys.verify(Redacted.make(authorization.slice(bearer.length)))
    credentials.set(socket, { authorization, caller })
    return caller
  }

  return (request: IncomingMessage, response: ServerResponse, longWay: () => boolean): void => {
    const { headers: sent, method = "" } = request
    const { authorization = "" } = sent
    const operation = isTraced || draining.begun || underWay.count >= Edge.mostUnderWay ||
        !authorization.startsWith(bearer) || sent["transfer-encoding"] !== undefined ||
        sent.expect !== undefined || !Edge.hasOneHost(request)
      ? undefined
      : operationOf(request)
    if (operation === undefined) {
      longWay()
      return
    }
    const exchange = new Exchange(requestIdOf(sent["x-request-id"]), clock.monotonicTimeNanosUnsafe())
    exchange.route = operation.route

    const send = (decision: Decision, { body, headers, status }: Answer) =>
      Effect.map(report(method, exchange, status), () => {
        response.writeHead(status, {
          ...Edge.headers(exchange.requestId, decision),
          ...operation.headers,
          ...headers,
          ...cors(method, sent.origin),
          ...draining.begun && { connection: "close" },
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body)
        })
        response.end(body)
        return true
      })
    const leave = Effect.succeed(false)

    /** Whether the request is answered. */
    const answered = Effect.matchEffect(callerOf(request.socket, authorization), {
      onFailure: () => leave,
      onSuccess: (key) => {
        exchange.keyId = key.id
        return Effect.flatMap(RateLimit.chargeKey(limiter, key), (decision) => {
          exchange.decision = decision
          if (decision.admitted) {
            return Effect.flatMap(operation.answer, (answer) => answer === undefined ? leave : send(decision, answer))
          }
          // Where a body is still to come, the answer has to wait for it.
          if (Edge.isUnread(request)) return leave
          const refusal = RateLimit.refusal(decision)
          return send(decision, { status: refusal.status, body: Failure.bodyOf(refusal) })
        })
      }
    })

    const end = (exit: Exit.Exit<boolean>): void => {
      if (Exit.isSuccess(exit)) {
        if (exit.value) return
      } else if (request.socket.destroyed && Cause.hasInterruptsOnly(exit.cause)) {
        run(report(method, exchange, clientClosedRequest))
        return
      } else {
        exchange.failure = exit.cause
      }
      exchange.leave(request)
      // There is none any more when the server has come to its end.
      if (!longWay()) response.destroy()
    }
    const fiber = run(answered)
    const ended = fiber.pollUnsafe()
    if (ended !== undefined) {
      end(ended)
      return
    }
    underWay.count++
    Fiber.runIn(fiber, scope)
    const lose = () => {
      if (request.socket.destroyed) fiber.interruptUnsafe()
    }
    // Node 22 does not tell it to an answer that waits for those before it; nor is a request told that was read to its end.
    response.on("close", lose)
    request.on("close", lose)
    fiber.addObserver((exit) => {
      underWay.count--
      end(exit)
    })
  }
})

/** The animal in a body of `length` bytes; nothing, and the body is there to be read again, if it is not plainly one. */
const petOf = (request: IncomingMessage, length: number) =>
  Effect.callback<NewPet | undefined>((resume) => {
    const chunks: Array<Buffer> = []
    let missing = length
    const take = () => {
      for (let chunk: unknown = request.read(); chunk instanceof Buffer; chunk = request.read()) {
        chunks.push(chunk)
        missing -= chunk.length
      }
      if (missing > 0) return
      request.off("readable", take)
      const body = Buffer.concat(chunks)
      const pet = isUtf8(body) && body[0] !== 0xef ? readNewPet(utf8.decode(body)) : undefined
      // In this turn: what was read to its end ends in the next, unless there is something to be read again.
      if (pet === undefined) request.unshift(body)
      resume(Effect.succeed(pet))
    }
    request.on("readable", take)
    return Effect.sync(() => request.off("readable", take))
  })
