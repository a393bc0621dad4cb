/** The handlers of the pet operations: list, create and get (SPEC §4). */
import { Clock, Effect, Layer } from "effect"
import type { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentKey } from "../../api/Auth.ts"
import { Gone, NotFound } from "../../api/Errors.ts"
import { listLimit } from "../../api/Paging.ts"
import { getPetSunset, type ListQuery, maxPageCharacters, type Pet, type PetsPage, Sunset } from "../../api/Pets.ts"
import { PetstoreApi } from "../../api/PetstoreApi.ts"
import { PetRepository } from "../../pets/PetRepository.ts"
import { isServerSource } from "../response/ServerSource.ts"

const gone = new Gone()

/** Fails with 410 from the sunset of the deprecated operation on (RFC 8594). */
export const sunset = Layer.succeed(Sunset, (httpEffect) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (now): Effect.Effect<HttpServerResponse.HttpServerResponse, Gone | Effect.Error<typeof httpEffect>> =>
      now < getPetSunset.getTime() ? httpEffect : Effect.fail(gone)
  ))

/** From this many characters of names on, a response counts as large, and few large ones are rendered at once. */
const minLargeResponseCharacters = 65_536

const isLarge = (pets: ReadonlyArray<Pet>): boolean => {
  let length = 0
  for (const { name } of pets) length += name.length
  return length >= minLargeResponseCharacters
}

/**
 * Reads the pets of the page of a query, and one more if there is another page. It interrupts if the client's
 * connection is closed, so that no page is rendered for it.
 */
const fetchPage = (
  repository: PetRepository["Service"],
  { cursor: after, limit = listLimit.default, status }: ListQuery,
  source: object
): Effect.Effect<ReadonlyArray<Pet>> => {
  const selection = { limit: limit + 1, status, after }
  if (!isServerSource(source)) return repository.list(selection)
  return Effect.flatMap(repository.list(selection, source.reserveLargeResponse), (found) => {
    if (source.isClosed) return Effect.interrupt
    // The pets would stay in memory while the request waits, so they are read again afterwards.
    return isLarge(found)
      ? Effect.andThen(source.reserveLargeResponse, repository.list(selection))
      : Effect.succeed(found)
  })
}

/** Makes the page from the found pets. Long names make it shorter than the limit (`maxPageCharacters`). */
const toPage = (query: ListQuery, found: ReadonlyArray<Pet>) => {
  const { limit = listLimit.default } = query
  let end = 0
  for (let length = 0; end < limit && end < found.length; end++) {
    length += found[end]?.name.length ?? 0
    if (length > maxPageCharacters && end > 0) break
  }
  const pets = found.slice(0, end)
  const last = pets.at(-1)
  return last === undefined || found.length <= end ? { pets } : { pets, next: { ...query, cursor: last.id } }
}

/**
 * Caches first pages, the most frequent requests, by the array that the repository returns again for the same pets. A
 * page also depends on the limit. It is frozen, so that its response is encoded once.
 */
const cacheFirstPages = () => {
  const cached = new WeakMap<ReadonlyArray<Pet>, { readonly limit: number | undefined; readonly page: PetsPage }>()
  return (query: ListQuery, found: ReadonlyArray<Pet>): PetsPage => {
    const entry = cached.get(found)
    if (entry !== undefined && entry.limit === query.limit) return entry.page
    const page = Object.freeze(toPage(query, found))
    cached.set(found, { limit: query.limit, page })
    return page
  }
}

/** The handlers of the `pets` group of `PetstoreApi`. */
export const layer = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  Effect.fnUntraced(function*(handlers) {
    const repository = yield* PetRepository
    const firstPage = cacheFirstPages()
    return handlers.handleAll({
      listPets: ({ query, request }) =>
        Effect.map(
          fetchPage(repository, query, request.source),
          (found) => query.cursor === undefined ? firstPage(query, found) : toPage(query, found)
        ),
      createPet: ({ headers, payload }) => {
        const key = headers["idempotency-key"]
        return key === undefined
          ? Effect.orDie(repository.create(payload))
          : Effect.flatMap(CurrentKey, ({ id: owner }) => repository.create(payload, { owner, key }))
      },
      getPet: ({ params: { petId } }) =>
        Effect.flatMap(
          repository.find(petId),
          (pet) => Effect.fromOption(pet, () => new NotFound({ message: `There is no pet ${petId}.` }))
        )
    })
  })
)
