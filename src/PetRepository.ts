/** Where the animals are kept. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import type { IdempotencyKeyReused } from "./api/Errors.ts"
import type { NewPet, Pet, PetStatus } from "./api/Pets.ts"
import { ChangePoller } from "./database/ChangePoller.ts"
import { fingerprint, type Idempotency, rememberedFor, reused } from "./pet-repository/Idempotency.ts"
import { sqlPets } from "./pet-repository/SqlPets.ts"

/** Which animals, and how many of them at most. */
export interface Selection {
  readonly limit: number
  readonly status?: PetStatus | undefined
  /** Only those with a greater id. */
  readonly after?: bigint | undefined
}

export class PetRepository extends Context.Service<PetRepository, {
  /**
   * Animals by ascending id; where their names are longer than `longestPage`, those with which they are, or more. The
   * same array may be given again, where it would have the same animals. `beforeLongNames` runs before more than
   * four names of over 4 KiB are read into memory.
   */
  list(selection: Selection, beforeLongNames?: Effect.Effect<void>): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Adds an animal under an id that none had before. It is durable when the effect succeeds. Under a name that came
   * within the last 24 hours it adds nothing, and answers as it did then; it fails if that was about another animal.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<Pet, IdempotencyKeyReused>

  /** The animal with this id, if there is one. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}>()("petstore/PetRepository") {
  /** On PostgreSQL, with the tables of `migrations/`. A fault of the database is a defect: callers cannot mend it. */
  static readonly layer = Layer.effect(PetRepository, sqlPets).pipe(Layer.provide(ChangePoller.layer))

  /** In this process's memory, for tests. */
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
            return known.request === request ? Effect.succeed(known.pet) : reused
          }
          const pet = add(newPet)
          names.set(name, { request, pet, expires: now + Duration.toMillis(rememberedFor) })
          return Effect.succeed(pet)
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
