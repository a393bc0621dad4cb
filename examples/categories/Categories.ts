import { Context } from "effect"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { IdempotencyKeyReused, type ServiceUnavailable } from "../../src/api/Errors.ts"
import type { Collection } from "../../src/collection/Collection.ts"
import { type Table, text } from "../../src/collection/Table.ts"
import type { NewCategory } from "./CategoriesApi.ts"

export const categories: Table<NewCategory, never, IdempotencyKeyReused, ServiceUnavailable> = {
  name: "categories",
  columns: { name: text("name"), slug: text("slug") },
  filters: [],
  keyReused: new IdempotencyKeyReused(),
  errors: databaseErrors,
  maxCached: 1_000,
  // Categories change: other processes see a change within a second.
  cacheSeconds: 1
}

/** Stores the categories. */
export class Categories extends Context.Service<
  Categories,
  Collection<NewCategory, never, IdempotencyKeyReused, ServiceUnavailable>
>()("example/Categories") {}
