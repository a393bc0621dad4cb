/** Declares the pet repository, and provides it in memory. `SqlPetRepository.ts` provides it on PostgreSQL. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import type { NewPet, Pet } from "../api/Pets.ts"
import { canonicalText, keyLifetime, keyReused, markReplayed } from "./Idempotency.ts"
import type { PetStore } from "./PetStore.ts"

/** The service that stores pets. `PetStore` documents its operations. */
export class PetRepository extends Context.Service<PetRepository, PetStore>()("petstore/PetRepository") {
  /** Stores pets in the memory of this process, for tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    const claims = new Map<string, { readonly requestText: string; readonly pet: Pet; readonly expiresAtMs: number }>()
    let lastId = 0n
    const insert = (newPet: NewPet): Pet => {
      const pet = { id: ++lastId, ...newPet }
      pets.set(pet.id, pet)
      return pet
    }
    return PetRepository.of({
      list: ({ after, limit, status }) =>
        Effect.sync(() =>
          pets.values()
            .filter((pet) => (status === undefined || pet.status === status) && (after === undefined || pet.id > after))
            .take(limit)
            .toArray()
        ),
      create: (newPet, idempotency) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          if (idempotency === undefined) return Effect.succeed(insert(newPet))
          const claimId = JSON.stringify([idempotency.owner, idempotency.key])
          const requestText = canonicalText(newPet)
          const existing = claims.get(claimId)
          if (existing !== undefined && now < existing.expiresAtMs) {
            return existing.requestText === requestText
              ? Effect.succeed(markReplayed(existing.pet))
              : keyReused
          }
          const pet = insert(newPet)
          claims.set(claimId, { requestText, pet, expiresAtMs: now + Duration.toMillis(keyLifetime) })
          return Effect.succeed(pet)
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
