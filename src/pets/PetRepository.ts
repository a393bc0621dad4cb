/** The pet repository: where pets are stored. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import type { NewPet, Pet } from "../api/Pets.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import { fingerprint, keyLifetime, keyReused } from "./Idempotency.ts"
import type { PetStore } from "./PetStore.ts"
import { makeSqlPetRepository } from "./SqlPetRepository.ts"

export class PetRepository extends Context.Service<PetRepository, PetStore>()("petstore/PetRepository") {
  /**
   * Stores pets on PostgreSQL, with the tables of `migrations/`. A database fault is a defect, because callers cannot
   * fix it.
   */
  static readonly layer = Layer.effect(PetRepository, makeSqlPetRepository).pipe(Layer.provide(ChangePoller.layer))

  /** Stores pets in this process's memory, for tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    const names = new Map<string, { readonly request: string; readonly pet: Pet; readonly expires: number }>()
    let lastId = 0n
    const add = (newPet: NewPet): Pet => {
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
          if (idempotency === undefined) return Effect.succeed(add(newPet))
          const name = JSON.stringify([idempotency.owner, idempotency.key])
          const request = fingerprint(newPet).toString("hex")
          const known = names.get(name)
          if (known !== undefined && now < known.expires) {
            return known.request === request ? Effect.succeed(known.pet) : keyReused
          }
          const pet = add(newPet)
          names.set(name, { request, pet, expires: now + Duration.toMillis(keyLifetime) })
          return Effect.succeed(pet)
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
