import { Clock, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentKey } from "../api/Auth.ts"
import { Gone, NotFound } from "../api/Errors.ts"
import { listLimit } from "../api/Paging.ts"
import { getPetSunset, type ListQuery, longestPage, type Pet, Sunset } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { PetRepository } from "../PetRepository.ts"
import { IncomingRequest } from "./IncomingRequest.ts"

const gone = new Gone()

const sunset = Layer.succeed(
  Sunset,
  Effect.fnUntraced(function*(httpEffect) {
    const now = yield* Clock.currentTimeMillis
    return now < getPetSunset.getTime() ? yield* httpEffect : yield* gone
  })
)

/** Characters of the names in a response from which on it is rendered with few others at once. */
const largeResponse = 65_536

const isLarge = (pets: ReadonlyArray<Pet>): boolean => {
  let length = 0
  for (const { name } of pets) length += name.length
  return length >= largeResponse
}

/**
 * The pets of the page that a query selects, and one more if there is another page. Interrupted if the connection of
 * `source` is closed, so that no page is rendered for it: of many requests that waited for one lookup, the first
 * responses may already have been too much for their connection.
 */
export const look = (
  repository: PetRepository["Service"],
  { cursor: after, limit = listLimit.default, status }: ListQuery,
  source: object
): Effect.Effect<ReadonlyArray<Pet>> => {
  const selection = { limit: limit + 1, status, after }
  if (!(source instanceof IncomingRequest)) return repository.list(selection)
  return Effect.flatMap(repository.list(selection, source.reserveLargeResponse), (found) => {
    if (source.socket.destroyed) return Effect.interrupt
    return isLarge(found) ? Effect.as(source.reserveLargeResponse, found) : Effect.succeed(found)
  })
}

/** The page of what `look` found: it has fewer animals than were asked for where their names are long. */
export const pageOf = (query: ListQuery, found: ReadonlyArray<Pet>) => {
  const { limit = listLimit.default } = query
  let end = 0
  for (let length = 0; end < limit && end < found.length; end++) {
    length += found[end]?.name.length ?? 0
    if (length > longestPage && end > 0) break
  }
  const pets = found.slice(0, end)
  const last = pets.at(-1)
  return last === undefined || found.length <= end ? { pets } : { pets, next: { ...query, cursor: last.id } }
}

/** The animal with an id. */
export const one = (repository: PetRepository["Service"], id: bigint): Effect.Effect<Pet, NotFound> =>
  Effect.flatMap(
    repository.find(id),
    (pet) => Effect.fromOption(pet, () => new NotFound({ message: `There is no pet ${id}.` }))
  )

export const layer = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  Effect.fnUntraced(function*(handlers) {
    const repository = yield* PetRepository
    return handlers.handleAll({
      listPets: ({ query, request }) =>
        Effect.map(look(repository, query, request.source), (found) => pageOf(query, found)),
      createPet: Effect.fnUntraced(function*({ headers, payload }) {
        const key = headers["idempotency-key"]
        if (key === undefined) return yield* repository.create(payload)
        const { id: owner } = yield* CurrentKey
        return yield* repository.create(payload, { owner, key })
      }),
      getPet: ({ params: { petId } }) => one(repository, petId)
    })
  })
).pipe(Layer.provide(sunset))
