import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { PetRepository } from "../pets/PetRepository.ts"
import * as CollectionHandlers from "./CollectionHandlers.ts"
import { createItem, listPage, orNotFound } from "./CollectionHandlers.ts"

const group = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  (handlers) =>
    Effect.map(PetRepository, (pets) =>
      handlers.handleAll({
        listPets: ({ query }) =>
          Effect.map(
            listPage(pets, query, { status: query.status }),
            ({ items, ...rest }) => ({ pets: items, ...rest })
          ),
        createPet: ({ headers, payload }) =>
          Effect.map(
            createItem(pets, payload, headers["idempotency-key"]),
            ({ isReplay, item }) => ({ pet: item, isReplay })
          ),
        getPet: ({ params: { petId } }) => orNotFound("pet", petId, pets.find(petId))
      }))
)

export const layer = CollectionHandlers.layer(PetRepository, group)
