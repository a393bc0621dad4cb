/** Declares the operations that each implementation of the pet repository provides. */
import type { Effect, Option } from "effect"
import type { IdempotencyKeyReused } from "../api/Errors.ts"
import type { CreatedPet, NewPet, Pet, PetStatus } from "../api/Pets.ts"
import type { Idempotency } from "./Idempotency.ts"

/** Selects the pets of one page of the list, which is in ascending order of ids. */
export interface Selection {
  /** The maximum number of pets. */
  readonly limit: number
  /** Only pets with this status. */
  readonly status?: PetStatus | undefined
  /** Only pets with a greater id. */
  readonly after?: bigint | undefined
}

/** Stores pets. A database error is a defect in each operation. */
export interface PetStore {
  /**
   * Returns pets in ascending order of ids. A page can have fewer pets than `limit` although more exist: it ends when
   * its names exceed `maxPageCharacters`. Calls for the same page can return the same array.
   *
   * `beforeLongNames` runs before more than four names of over 1 KiB are read into memory.
   */
  list(selection: Selection, beforeLongNames?: Effect.Effect<void>): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Creates a pet under a new id. The pet is durable when the effect succeeds.
   *
   * If the idempotency key was used within the last 24 hours, it returns the pet of the first call, marked as
   * `replayed`. It fails with `IdempotencyKeyReused` if that pet was another one.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<CreatedPet, IdempotencyKeyReused>

  /** Returns the pet with this id, or `None` if no pet has it. */
  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}
