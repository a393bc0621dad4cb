import { Effect, Option } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { NotFound } from "../api/Errors.ts"
import { listLimit } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { PetRepository } from "../PetRepository.ts"

export const layer = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  Effect.fnUntraced(function*(handlers) {
    const pets = yield* PetRepository
    return handlers.handleAll({
      listPets: ({ query: { limit = listLimit.default, status } }) => pets.list({ limit, status }),
      createPet: ({ payload }) => pets.create(payload),
      getPet: Effect.fnUntraced(function*({ params: { petId } }) {
        const pet = yield* pets.find(petId)
        return Option.isSome(pet) ? pet.value : yield* new NotFound({ message: `There is no pet ${petId}.` })
      })
    })
  })
)
