import { Clock, Context, Duration, Effect, Layer, Option, type Schema } from "effect"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../api/Errors.ts"
import { cutPage } from "../api/Paging.ts"
import type { CreatedPet, NewPet, Pet, PetStatus } from "../api/Pets.ts"

/** A page: the first pets after the id `after`, by ascending id. */
export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  /** Only pets with this status. */
  readonly status?: PetStatus | undefined
  /** The last id of the previous page. */
  readonly after?: bigint | undefined
}

/** A page of pets. */
export interface Page {
  /** The pets, by ascending id. */
  readonly pets: ReadonlyArray<Pet>
  /** The last id of the page, if there is a next page. */
  readonly next?: bigint
}

/** If there is a next page, `found` also contains the first pet of the next page. */
export const toPage = (found: ReadonlyArray<Pet>, limit: number): Page => {
  const { items, last } = cutPage(found, limit)
  return last === undefined ? { pets: items } : { pets: items, next: last.id }
}

/** The identity of a create, so that its retry creates no second pet. */
export interface Idempotency {
  /** The id of the API key that sent the idempotency key. */
  readonly owner: string
  /** The idempotency key. */
  readonly key: string
}

export const idempotencyKeyLifetime = Duration.hours(24)

export const keyReused = new IdempotencyKeyReused()

/**
 * Equal pets have equal texts. A new optional field does not change the text of a pet without that field, so stored
 * hashes stay valid.
 */
export const canonicalText = ({ categoryId, name, status, ...others }: NewPet): string => {
  const sorted = Object.entries<Schema.Json>(others).toSorted(([a], [b]) => a < b ? -1 : 1)
  return JSON.stringify([name, String(categoryId), status, ...sorted])
}

/** Stores the pets. */
export class PetRepository extends Context.Service<PetRepository, {
  /** Returns pets by ascending id. */
  list(selection: Selection): Effect.Effect<Page, ServiceUnavailable>

  /**
   * Creates a pet, which is durable once the effect succeeds. If the idempotency key was used within 24 hours, returns
   * the pet created then. Fails with `IdempotencyKeyReused` if that pet differs from `pet`.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<CreatedPet, IdempotencyKeyReused | ServiceUnavailable>

  /** Returns `None` for an unknown id. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>, ServiceUnavailable>
}>()("petstore/PetRepository") {
  /** For tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    const claims = new Map<string, Readonly<{ pet: Pet; text: string | undefined; expiresAtMs: number }>>()
    let lastId = 0n
    return PetRepository.of({
      list: ({ after = 0n, limit, status }) =>
        Effect.sync(() => {
          const found = pets.values().filter((pet) => (status === undefined || pet.status === status) && pet.id > after)
          return toPage(found.take(limit + 1).toArray(), limit)
        }),
      create: Effect.fnUntraced(function*(newPet, idempotency) {
        const nowMs = yield* Clock.currentTimeMillis
        const text = idempotency && canonicalText(newPet)
        const claimId = idempotency && JSON.stringify([idempotency.owner, idempotency.key])
        const claimed = claimId === undefined ? undefined : claims.get(claimId)
        if (claimed !== undefined && nowMs < claimed.expiresAtMs) {
          if (claimed.text !== text) return yield* keyReused
          return { pet: claimed.pet, isReplay: true }
        }
        const pet = { id: ++lastId, ...newPet }
        pets.set(pet.id, pet)
        if (claimId !== undefined) {
          claims.set(claimId, { pet, text, expiresAtMs: nowMs + Duration.toMillis(idempotencyKeyLifetime) })
        }
        return { pet, isReplay: false }
      }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
