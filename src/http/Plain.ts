/**
 * The plainest requests, and what the HttpApi answers to them, without its routing and its walk through schemas.
 * Whatever is out of the ordinary is left to it, and so is all that is refused but a GET at its limits; a test holds
 * the two together.
 */
import { Clock, Effect } from "effect"
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import { getPetHeaders, getPetSunset, type ListQuery, type NewPet, type Pet } from "../api/Pets.ts"
import { ApiKeys } from "../ApiKeys.ts"
import { PetRepository } from "../PetRepository.ts"
import { RateLimiter } from "../RateLimiter.ts"
import type { Slot } from "./AdmissionControl.ts"
import * as Body from "./Body.ts"
import type { Exchange } from "./Exchange.ts"
import * as Failure from "./Failure.ts"
import * as PetQuery from "./PetQuery.ts"
import * as Pets from "./Pets.ts"
import { petsText, petText, readNewPet } from "./PetText.ts"
import * as RateLimit from "./RateLimit.ts"

/** An answer to a plain request; the body is JSON. */
export interface Answer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>> | undefined
}

/** What answers a request; nothing where it shows only on the way that it is not plain. */
type Answering = Effect.Effect<Answer | undefined>

interface Operation {
  /** The path of the endpoint as the contract writes it. */
  readonly route: string
  /** What its answer carries also where it is refused. */
  readonly headers?: Readonly<Record<string, string>>
  /** For a request that is admitted. */
  readonly answer: Answering
}

const bearer = "Bearer "

const listPath = "/v1/pets"
const getPath = /^\/v1\/pets\/(\d{1,18})$/
const utf8 = new TextDecoder()

export const make = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const limiter = yield* RateLimiter
  const repository = yield* PetRepository
  const clock = yield* Clock.Clock

  /** The animal with these digits. */
  const get = (digits: string): Operation => ({
    route: "/v1/pets/:petId",
    headers: getPetHeaders,
    answer: Effect.match(Pets.one(repository, BigInt(digits)), {
      onSuccess: (pet) => ({ status: 200, body: petText(pet), headers: getPetHeaders }),
      onFailure: (missing) => ({ status: missing.status, body: Failure.bodyOf(missing), headers: getPetHeaders })
    })
  })

  /**
   * The bodies of first pages, which clients request most, by the array that the repository gives each time. The body
   * depends on the limit, too.
   */
  const firstPages = new WeakMap<ReadonlyArray<Pet>, { readonly limit: number | undefined; readonly body: string }>()

  const list = (request: IncomingMessage, query: ListQuery): Operation => ({
    route: listPath,
    answer: Effect.map(Pets.look(repository, query, request), (found) => {
      const { next, pets } = Pets.pageOf(query, found)
      const cached = firstPages.get(found)
      const body = cached?.limit === query.limit && cached !== undefined ? cached.body : petsText(pets)
      if (cached?.body !== body && query.cursor === undefined) firstPages.set(found, { limit: query.limit, body })
      return { status: 200, body, headers: next && { link: `<${listPath}${PetQuery.write(next)}>; rel="next"` } }
    })
  })

  const create = (request: IncomingMessage, length: number, slot: Slot): Operation => ({
    route: listPath,
    answer: Effect.flatMap(Effect.orDie(slot.whileWaiting(petOf(request, length))), (pet) =>
      pet === undefined
        ? Effect.undefined
        : Effect.map(Effect.orDie(repository.create(pet)), (created) => ({
          status: 201,
          body: petText(created),
          headers: { location: `${listPath}/${created.id}` }
        })))
  })

  /** What a request asks for, if it is plain as far as its head tells. */
  const operationOf = (request: IncomingMessage, slot: Slot): Operation | undefined => {
    const { headers: sent, method, url = "" } = request
    if (method === "GET" && sent["content-length"] === undefined) {
      const [, digits] = getPath.exec(url) ?? []
      if (digits !== undefined) {
        return clock.currentTimeMillisUnsafe() < getPetSunset.getTime() ? get(digits) : undefined
      }
      const query = url.startsWith(listPath) ? PetQuery.read(url.slice(listPath.length)) : undefined
      return query && list(request, query)
    }
    const length = Number(sent["content-length"])
    return method === "POST" && url === listPath && length > 0 && length <= Body.maxBytes &&
        sent["content-type"] === "application/json" && sent["content-encoding"] === undefined &&
        sent["idempotency-key"] === undefined
      ? create(request, length, slot)
      : undefined
  }

  /**
   * What answers `request`, if it is plain as far as its head tells, and writes down in `exchange` what was done of it.
   */
  return (request: IncomingMessage, exchange: Exchange): Answering | undefined => {
    const { authorization = "", expect, "transfer-encoding": coding } = request.headers
    const operation = authorization.startsWith(bearer) && coding === undefined && expect === undefined
      ? operationOf(request, exchange.slot)
      : undefined
    if (operation === undefined) return undefined
    exchange.route = operation.route
    return Effect.matchEffect(apiKeys.verify(authorization.slice(bearer.length)), {
      onFailure: () => Effect.undefined,
      onSuccess: (key) => {
        exchange.keyId = key.id
        return Effect.flatMap(RateLimit.chargeKey(limiter, key), (decision) => {
          exchange.decision = decision
          if (decision.admitted) {
            const assigned = exchange.slot.assign(`key:${key.id}`)
            return assigned === Effect.void
              ? operation.answer
              : Effect.andThen(Effect.orDie(assigned), operation.answer)
          }
          // Its answer would have to wait for the body.
          if (request.method === "POST") return Effect.undefined
          const refusal = RateLimit.refusal(decision)
          return Effect.succeed({ status: refusal.status, body: Failure.bodyOf(refusal), headers: operation.headers })
        })
      }
    })
  }
})

/**
 * The animal in a body of `length` bytes; nothing, and the body is there to be read again, if it is not plainly one, or
 * not all of it comes. It is to be interrupted when the connection closes.
 */
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
      forget()
      const body = Buffer.concat(chunks)
      const pet = isUtf8(body) && body[0] !== 0xef ? readNewPet(utf8.decode(body)) : undefined
      // In this turn: what was read to its end ends in the next, unless there is something to be read again.
      if (pet === undefined) request.unshift(body)
      resume(Effect.succeed(pet))
    }
    const fail = () => {
      forget()
      // The long way tells what is wrong with the body, if there is somebody to tell.
      resume(request.socket.destroyed ? Effect.interrupt : Effect.undefined)
    }
    const forget = () => request.off("readable", take).off("error", fail)
    if (request.destroyed) return fail()
    request.on("readable", take).on("error", fail)
    return Effect.sync(forget)
  })
