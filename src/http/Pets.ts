import { Clock, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentKey } from "../api/Auth.ts"
import { Gone, NotFound } from "../api/Errors.ts"
import { getPetDeprecation, listLimit, type Pet, type PetStatus, Sunset } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { PetRepository } from "../PetRepository.ts"

const gone = new Gone({ message: "This operation was removed. Use GET /v1/pets with the status filter." })

const sunset = Layer.succeed(
  Sunset,
  Effect.fnUntraced(function*(httpEffect) {
    const now = yield* Clock.currentTimeMillis
    return now < getPetDeprecation.sunset.getTime() ? yield* httpEffect : yield* gone
  })
)

/** The page that a query asks for. */
export const page = Effect.fnUntraced(function*(
  repository: PetRepository["Service"],
  query: { readonly cursor?: bigint; readonly limit?: number; readonly status?: PetStatus }
) {
  const { cursor: after, limit = listLimit.default, status } = query
  // One more than the page holds tells whether there is another page.
  const found = yield* repository.list({ limit: limit + 1, status, after })
  const pets = found.slice(0, limit)
  const last = pets.at(-1)
  return last === undefined || found.length <= limit ? { pets } : { pets, next: { ...query, cursor: last.id } }
})

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
      listPets: ({ query }) => page(repository, query),
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
