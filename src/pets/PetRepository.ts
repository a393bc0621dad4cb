import { Context } from "effect"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../api/Errors.ts"
import { type NewPet, PetStatus } from "../api/Pets.ts"
import { type Collection, layerMemory } from "../collection/Collection.ts"
import { int64, oneOf, optional, type Table, text } from "../collection/Table.ts"

export const pets: Table<NewPet, "status", IdempotencyKeyReused, ServiceUnavailable> = {
  name: "pets",
  columns: {
    name: text("name"),
    categoryId: int64("category_id"),
    status: optional(oneOf("status", PetStatus.literals))
  },
  filters: ["status"],
  keyReused: new IdempotencyKeyReused(),
  errors: databaseErrors,
  // This many pets with names of typical length use about 80 MiB of memory (docs/configuration.md).
  maxCached: 2 ** 19,
  isCached: ({ name }) => name.length <= 100,
  // Must not change, because the hashes that are stored with idempotency keys are of this text. It lacks the table's
  // name, because it comes from when pets were the only resource.
  canonicalText: ({ categoryId, name, status, ...others }) =>
    JSON.stringify([name, categoryId, status, ...Object.entries(others).toSorted(([a], [b]) => a < b ? -1 : 1)])
}

/** Stores the pets. */
export class PetRepository extends Context.Service<
  PetRepository,
  Collection<NewPet, "status", IdempotencyKeyReused, ServiceUnavailable>
>()("petstore/PetRepository") {
  /** Keeps the pets in memory, for tests. */
  static readonly layerMemory = layerMemory(PetRepository, pets)
}
