/** The pet repository: its operations, the rules of idempotency keys, and an implementation in memory. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { IdempotencyKeyReused } from "../api/Errors.ts"
import { type CreatedPet, type NewPet, type Pet, type PetStatus, replayed } from "../api/Pets.ts"

/** Selects the pets of one page of the list, which is in ascending order of ids. */
export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  /** Only pets with this status. */
  readonly status?: PetStatus | undefined
  /** Only pets with a greater id. */
  readonly after?: bigint | undefined
}

/** An idempotency key, and the id of the API key that it belongs to. Two API keys can use the same idempotency key. */
export interface Idempotency {
  readonly owner: string
  readonly key: string
}

/** The time for which an idempotency key protects against a second create, from the first create on. */
export const keyLifetime = Duration.hours(24)

/** 422: the idempotency key was used for another pet. All requests share this instance. */
export const keyReused = new IdempotencyKeyReused()

/** Marks a pet that an earlier create with the same idempotency key inserted. */
export const markReplayed = (pet: Pet): CreatedPet => ({ ...pet, [replayed]: true })

/** Returns a text of a pet's fields. Two requests have equal texts if and only if their pets are equal. */
export const canonicalText = ({ categoryId, name, status }: NewPet): string =>
  JSON.stringify([name, String(categoryId), status])

/** Stores pets. A database error is a defect in each operation. */
export class PetRepository extends Context.Service<PetRepository, {
  /**
   * Returns pets in ascending order of ids. Calls for the same page can return the same array, which is frozen then, so
   * that its text can be encoded once.
   */
  list(selection: Selection): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Creates a pet under a new id. The pet is durable when the effect succeeds.
   *
   * If the idempotency key was used within the last 24 hours, it returns the pet of the first call, marked as
   * `replayed`. It fails with `IdempotencyKeyReused` if that pet was another one.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<CreatedPet, IdempotencyKeyReused>

  /** Returns the pet with this id, or `None` if no pet has it. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}>()("petstore/PetRepository") {
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
              : Effect.fail(keyReused)
          }
          const pet = insert(newPet)
          claims.set(claimId, { requestText, pet, expiresAtMs: now + Duration.toMillis(keyLifetime) })
          return Effect.succeed(pet)
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
