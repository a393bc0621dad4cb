/** The operations of the pet repository, which each of its implementations provides. */
import type { Effect, Option } from "effect"
import type { IdempotencyKeyReused } from "../api/Errors.ts"
import type { NewPet, Pet, PetStatus } from "../api/Pets.ts"
import type { Idempotency } from "./Idempotency.ts"

/** The pets that a list returns, by ascending id. */
export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  readonly status?: PetStatus | undefined
  /** Only pets with a greater id. */
  readonly after?: bigint | undefined
}

export interface PetStore {
  /**
   * Returns pets by ascending id. A page of long names may hold fewer pets: as many as reach `maxPageCharacters`. The
   * same array may be returned again for the same pets. `beforeLongNames` runs before more than four names of over
   * 4 KiB are read into memory.
   */
  list(selection: Selection, beforeLongNames?: Effect.Effect<void>): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Creates a pet under a new id. The pet is durable when the effect succeeds. With an idempotency key that was used
   * within the last 24 hours, it returns the pet of the first call, or fails if that pet was another one.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<Pet, IdempotencyKeyReused>

  /** Returns the pet with this id, if there is one. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}
