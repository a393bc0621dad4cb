/** Idempotency keys: a create that is retried under the same key creates one pet. */
import { Duration } from "effect"
import { createHash } from "node:crypto"
import { IdempotencyKeyReused } from "../api/Errors.ts"
import type { NewPet } from "../api/Pets.ts"

/** An idempotency key and the API key that it belongs to. */
export interface Idempotency {
  readonly owner: string
  readonly key: string
}

/** The time for which an idempotency key is known. */
export const keyLifetime = Duration.hours(24)

export const keyReused = new IdempotencyKeyReused()

/** Returns the SHA-256 that two requests for the same pet have in common. */
export const fingerprint = ({ categoryId, name, status }: NewPet): Buffer =>
  createHash("sha256").update(JSON.stringify([name, String(categoryId), status])).digest()
