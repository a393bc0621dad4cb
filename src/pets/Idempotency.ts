/** Defines idempotency keys: a create that is retried with the same key creates one pet. */
import { Duration } from "effect"
import { IdempotencyKeyReused } from "../api/Errors.ts"
import { type CreatedPet, type NewPet, type Pet, replayed } from "../api/Pets.ts"

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
