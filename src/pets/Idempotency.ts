/** Additions by name, so that what is asked for again is done once. */
import { Duration } from "effect"
import { createHash } from "node:crypto"
import { IdempotencyKeyReused } from "../api/Errors.ts"
import type { NewPet } from "../api/Pets.ts"

/** What names an addition, so that it is done once however often it is asked for: a key, among those of its owner. */
export interface Idempotency {
  readonly owner: string
  readonly key: string
}

/** How long an addition is known by its name. */
export const keyLifetime = Duration.hours(24)

export const keyReused = new IdempotencyKeyReused()

/** Two animals to be added are the same if this is (SHA-256). */
export const fingerprint = ({ categoryId, name, status }: NewPet): Buffer =>
  createHash("sha256").update(JSON.stringify([name, String(categoryId), status])).digest()
