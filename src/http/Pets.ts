import { Clock, Effect, Layer, Option } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentKey } from "../api/Auth.ts"
import { Gone, NotFound } from "../api/Errors.ts"
import { getPetDeprecation, listLimit, Sunset } from "../api/Pets.ts"
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

export const layer = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  Effect.fnUntraced(function*(handlers) {
    const repository = yield* PetRepository
    return handlers.handleAll({
      listPets: Effect.fnUntraced(function*({ query }) {
        const { cursor: after, limit = listLimit.default, status } = query
        // One more than the page holds tells whether there is another page.
        const found = yield* repository.list({ limit: limit + 1, status, after })
        const pets = found.slice(0, limit)
        const last = pets.at(-1)
        return last === undefined || found.length <= limit ? { pets } : { pets, next: { ...query, cursor: last.id } }
      }),
      createPet: Effect.fnUntraced(function*({ headers, payload }) {
        const key = headers["idempotency-key"]
        if (key === undefined) return yield* repository.create(payload)
        const { id: owner } = yield* CurrentKey
        return yield* repository.create(payload, { owner, key })
      }),
      getPet: Effect.fnUntraced(function*({ params: { petId } }) {
        const pet = yield* repository.find(petId)
        return Option.isSome(pet) ? pet.value : yield* new NotFound({ message: `There is no pet ${petId}.` })
      })
    })
  })
).pipe(Layer.provide(sunset))
