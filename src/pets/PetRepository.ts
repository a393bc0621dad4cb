import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../api/Errors.ts"
import { cutPage } from "../api/Paging.ts"
import type { NewPet, Pet, PetStatus } from "../api/Pets.ts"

export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  readonly status?: PetStatus | undefined
  /** Only greater ids. */
  readonly after?: bigint | undefined
}

/** `next` is the `after` of the next page. The last page has none. */
export interface Page {
  readonly pets: ReadonlyArray<Pet>
  readonly next?: bigint
}

/** Makes a page of up to `limit + 1` pets. The extra pet shows that there is another page. */
export const toPage = (found: ReadonlyArray<Pet>, limit: number): Page => {
  const { items, last } = cutPage(found, limit)
  return last === undefined ? { pets: items } : { pets: items, next: last.id }
}

/** `isReplay` is `true` if an earlier create with the same idempotency key created the pet. */
export interface Created {
  readonly pet: Pet
  readonly isReplay: boolean
}

export interface Idempotency {
  /** The id of the API key. */
  readonly owner: string
  readonly key: string
}

export const keyLifetime = Duration.hours(24)

export const keyReused = new IdempotencyKeyReused()

/** Two pets have the same text only if all their fields are equal. */
export const canonicalText = ({ categoryId, name, status }: NewPet): string =>
  JSON.stringify([name, String(categoryId), status])

/** Each operation fails with `ServiceUnavailable` in an outage of the database. */
export class PetRepository extends Context.Service<PetRepository, {
  /** Returns pets by ascending id. */
  list(selection: Selection): Effect.Effect<Page, ServiceUnavailable>

  /**
   * Creates a pet, which is durable when the effect succeeds. If the idempotency key was used within 24 hours, returns
   * the pet of that create, or fails with `IdempotencyKeyReused` if it was for a different pet.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<Created, IdempotencyKeyReused | ServiceUnavailable>

  find(id: bigint): Effect.Effect<Option.Option<Pet>, ServiceUnavailable>
}>()("petstore/PetRepository") {
  /** For tests. */
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
      list: ({ after = 0n, limit, status }) =>
        Effect.sync(() => {
          const found = pets.values().filter((pet) => (status === undefined || pet.status === status) && pet.id > after)
          return toPage(found.take(limit + 1).toArray(), limit)
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
