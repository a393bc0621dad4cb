/** The pet repository: its operations, the rules of idempotency keys, and an implementation in memory. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../api/Errors.ts"
import { cutPage } from "../api/Paging.ts"
import type { NewPet, Pet, PetStatus } from "../api/Pets.ts"

/** Selects the pets of one page of the list, which is in ascending order of ids. */
export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  /** Only pets with this status. */
  readonly status?: PetStatus | undefined
  /** Only pets with a greater id. */
  readonly after?: bigint | undefined
}

/** One page of the list. `next` is the last id if there is another page: the next page is `after` it. */
export interface Page {
  readonly pets: ReadonlyArray<Pet>
  readonly next?: bigint
}

/** Makes a page of the pets that a store found: one more than `limit`, if there is another page. */
export const toPage = (found: ReadonlyArray<Pet>, limit: number): Page => {
  const { items, last } = cutPage(found, limit)
  return last === undefined ? { pets: items } : { pets: items, next: last.id }
}

/** The outcome of a create. It is a replay if an earlier create with the same idempotency key created the pet. */
export interface Created {
  readonly pet: Pet
  readonly isReplay: boolean
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

/** Returns a text of a pet's fields. Two requests have equal texts if and only if their pets are equal. */
export const canonicalText = ({ categoryId, name, status }: NewPet): string =>
  JSON.stringify([name, String(categoryId), status])

/** Stores pets. Each operation fails with `ServiceUnavailable` in an outage of the database. */
export class PetRepository extends Context.Service<PetRepository, {
  /** Returns a page of the pets in ascending order of ids. */
  list(selection: Selection): Effect.Effect<Page, ServiceUnavailable>

  /**
   * Creates a pet under a new id. The pet is durable when the effect succeeds.
   *
   * If the idempotency key was used within the last 24 hours, it returns the pet of the first call as a replay. It
   * fails with `IdempotencyKeyReused` if that pet was another one.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<Created, IdempotencyKeyReused | ServiceUnavailable>

  /** Returns the pet with this id, or `None` if no pet has it. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>, ServiceUnavailable>
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
        Effect.sync(() => {
          const found = pets.values()
            .filter((pet) => (status === undefined || pet.status === status) && (after === undefined || pet.id > after))
            .take(limit + 1)
          return toPage(found.toArray(), limit)
        }),
      create: (newPet, idempotency) =>
        Effect.flatMap(Clock.currentTimeMillis, (now): Effect.Effect<Created, IdempotencyKeyReused> => {
          if (idempotency === undefined) return Effect.succeed({ pet: insert(newPet), isReplay: false })
          const claimId = JSON.stringify([idempotency.owner, idempotency.key])
          const requestText = canonicalText(newPet)
          const existing = claims.get(claimId)
          if (existing !== undefined && now < existing.expiresAtMs) {
            return existing.requestText === requestText
              ? Effect.succeed({ pet: existing.pet, isReplay: true })
              : Effect.fail(keyReused)
          }
          const pet = insert(newPet)
          claims.set(claimId, { requestText, pet, expiresAtMs: now + Duration.toMillis(keyLifetime) })
          return Effect.succeed({ pet, isReplay: false })
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
