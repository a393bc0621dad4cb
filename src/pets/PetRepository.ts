import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../api/Errors.ts"
import { cutPage } from "../api/Paging.ts"
import type { CreatedPet, NewPet, Pet, PetStatus } from "../api/Pets.ts"

export interface Selection {
  readonly limit: number
  readonly status?: PetStatus | undefined
  /** Only greater ids. */
  readonly after?: bigint | undefined
}

/** `next` is the `after` of the next page. It is absent on the last page. */
export interface Page {
  readonly pets: ReadonlyArray<Pet>
  readonly next?: bigint
}

/** `found` has up to `limit + 1` pets. The extra pet means that there is a next page. */
export const toPage = (found: ReadonlyArray<Pet>, limit: number): Page => {
  const { items, last } = cutPage(found, limit)
  return last === undefined ? { pets: items } : { pets: items, next: last.id }
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

/** Each operation fails with `ServiceUnavailable` while the database is unavailable. */
export class PetRepository extends Context.Service<PetRepository, {
  /** Returns pets by ascending id. */
  list(selection: Selection): Effect.Effect<Page, ServiceUnavailable>

  /**
   * Creates a pet, which is durable once the effect succeeds. If the idempotency key was used within 24 hours, returns
   * the pet created then, or fails with `IdempotencyKeyReused` if that pet has other fields.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<CreatedPet, IdempotencyKeyReused | ServiceUnavailable>

  find(id: bigint): Effect.Effect<Option.Option<Pet>, ServiceUnavailable>
}>()("petstore/PetRepository") {
  /** For tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    const claims = new Map<string, { readonly pet: Pet; readonly expiresAtMs: number }>()
    let lastId = 0n
    return PetRepository.of({
      list: ({ after = 0n, limit, status }) =>
        Effect.sync(() => {
          const found = pets.values().filter((pet) => (status === undefined || pet.status === status) && pet.id > after)
          return toPage(found.take(limit + 1).toArray(), limit)
        }),
      create: Effect.fnUntraced(function*(newPet, idempotency) {
        const nowMs = yield* Clock.currentTimeMillis
        const claimId = idempotency && JSON.stringify([idempotency.owner, idempotency.key])
        const claimed = claimId === undefined ? undefined : claims.get(claimId)
        if (claimed !== undefined && nowMs < claimed.expiresAtMs) {
          if (canonicalText(claimed.pet) !== canonicalText(newPet)) return yield* keyReused
          return { pet: claimed.pet, isReplay: true }
        }
        const pet = { id: ++lastId, ...newPet }
        pets.set(pet.id, pet)
        if (claimId !== undefined) claims.set(claimId, { pet, expiresAtMs: nowMs + Duration.toMillis(keyLifetime) })
        return { pet, isReplay: false }
      }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}
