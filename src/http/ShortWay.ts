/**
 * The short way to an answer: what the HttpApi answers to the plainest requests, without its routing and its walk through
 * schemas. It takes a third of the CPU off a get (96 to 66 µs under `--cpu-prof`). Whatever is out of the
 * ordinary goes the long way, and so does all that is refused but for the limits; a test holds the two together.
 */
import { Clock, Effect, Exit, Redacted, Schema } from "effect"
import { type HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { isUtf8 } from "node:buffer"
import { IncomingMessage } from "node:http"
import { Cursor } from "../api/Paging.ts"
import { getPetDeprecation, listLimit, PetStatus } from "../api/Pets.ts"
import { ApiKeys } from "../ApiKeys.ts"
import { PetRepository } from "../PetRepository.ts"
import { RateLimiter } from "../RateLimiter.ts"
import type { Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as Pets from "./Pets.ts"
import { petsText, petText, readNewPet } from "./PetText.ts"
import * as RateLimit from "./RateLimit.ts"

type Answering = Effect.Effect<HttpServerResponse.HttpServerResponse | undefined, HttpServerError.HttpServerError>

const bearer = "Bearer "
const listPath = "/v1/pets"
const getPath = /^\/v1\/pets\/(\d{1,18})$/

const decodeCursor = Schema.decodeUnknownExit(Cursor)
const encodeCursor = Schema.encodeSync(Cursor)
const isStatus = Schema.is(PetStatus)
const utf8 = new TextDecoder()

type Query = Parameters<typeof Pets.page>[1]

export const make = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const limiter = yield* RateLimiter
  const repository = yield* PetRepository
  const clock = yield* Clock.Clock

  /** The answer to a plain GET, once it is admitted. */
  const toGet = (url: string, exchange: Exchange): Answering | undefined => {
    const [, digits] = getPath.exec(url) ?? []
    if (digits !== undefined) {
      if (clock.currentTimeMillisUnsafe() >= getPetDeprecation.sunset.getTime()) return undefined
      exchange.route = "/v1/pets/:petId"
      return Effect.match(Pets.one(repository, BigInt(digits)), {
        onSuccess: (pet) => json(petText(pet)),
        onFailure: (missing) => Failure.answer(missing)
      })
    }
    const query = readQuery(url)
    if (query === undefined) return undefined
    exchange.route = listPath
    return Effect.map(
      Pets.page(repository, query),
      ({ next, pets }) => json(petsText(pets), next && { headers: { link: linkTo(next) } })
    )
  }

  /** The answer to a plain POST of `body`, once it is admitted. */
  const toPost = (body: ArrayBuffer): Answering => {
    const bytes = Buffer.from(body)
    if (!isUtf8(bytes) || bytes[0] === 0xef) return Effect.undefined
    const pet = readNewPet(utf8.decode(bytes))
    if (pet === undefined) return Effect.undefined
    return Effect.map(
      Effect.orDie(repository.create(pet)),
      (created) => json(petText(created), { status: 201, headers: { location: `${listPath}/${created.id}` } })
    )
  }

  /** Answers `request` if it is plain; where that shows only on the way, there is nothing in the effect. */
  return (request: HttpServerRequest.HttpServerRequest, exchange: Exchange): Answering | undefined => {
    const { source } = request
    if (!(source instanceof IncomingMessage)) return undefined
    const { headers: sent, method, url = "" } = source
    const { authorization } = sent
    if (authorization?.startsWith(bearer) !== true || sent["transfer-encoding"] !== undefined) return undefined

    const admitted = (answer: Answering): Answering =>
      Effect.matchEffect(apiKeys.verify(Redacted.make(authorization.slice(bearer.length))), {
        onFailure: () => Effect.undefined,
        onSuccess: (key) => {
          exchange.keyId = key.id
          return Effect.flatMap(RateLimit.chargeKey(limiter, key), (decision) => {
            exchange.decision = decision
            return decision.admitted ? answer : Effect.succeed(Failure.answer(RateLimit.refusal(decision)))
          })
        }
      })

    if (method === "GET" && sent["content-length"] === undefined) {
      const answer = toGet(url, exchange)
      return answer && admitted(answer)
    }
    if (
      method === "POST" && url === listPath && Number(sent["content-length"]) <= Failure.maxBodyBytes &&
      sent["content-type"] === "application/json" && sent["content-encoding"] === undefined &&
      sent["idempotency-key"] === undefined
    ) {
      exchange.route = listPath
      return admitted(Effect.flatMap(request.arrayBuffer, toPost))
    }
    return undefined
  }
})

const json = (body: string, options: { readonly status?: number; readonly headers?: Record<string, string> } = {}) =>
  HttpServerResponse.text(body, { ...options, contentType: "application/json" })

/** The query of a list, if each parameter is there once and plainly right. */
const readQuery = (url: string): Query | undefined => {
  if (url === listPath) return {}
  if (!url.startsWith(`${listPath}?`)) return undefined
  let limit: number | undefined
  let status: PetStatus | undefined
  let cursor: bigint | undefined
  for (const parameter of url.slice(listPath.length + 1).split("&")) {
    const equals = parameter.indexOf("=")
    const value = parameter.slice(equals + 1)
    switch (parameter.slice(0, equals)) {
      case "limit": {
        const given = /^\d{1,3}$/.test(value) ? Number(value) : 0
        if (limit !== undefined || given < listLimit.minimum || given > listLimit.maximum) return undefined
        limit = given
        break
      }
      case "status":
        if (status !== undefined || !isStatus(value)) return undefined
        status = value
        break
      case "cursor": {
        const after = decodeCursor(value)
        if (cursor !== undefined || Exit.isFailure(after)) return undefined
        cursor = after.value
        break
      }
      default:
        return undefined
    }
  }
  return { ...limit !== undefined && { limit }, ...status && { status }, ...cursor !== undefined && { cursor } }
}

const linkTo = ({ cursor = 0n, limit, status }: Query): string => {
  const parameters = [limit && `limit=${limit}`, status && `status=${status}`, `cursor=${encodeCursor(cursor)}`]
  return `<${listPath}?${parameters.filter(Boolean).join("&")}>; rel="next"`
}
