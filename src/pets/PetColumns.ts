import { type NewPet, type Pet, PetStatus } from "../api/Pets.ts"

const columns = {
  name: ["name", "text"],
  categoryId: ["category_id", "bigint"],
  status: ["status", "text"]
} satisfies { readonly [Field in keyof NewPet]-?: readonly [column: string, type: string] }

const fields = Object.entries(columns)

export const insertedColumns = ["id", ...fields.map(([, [column]]) => `"${column}"`)].join()

export const insertedValues = ["id", ...fields.map(([field, [, type]]) => `("pet"->>'${field}')::${type}`)].join()

/** Reads pets as one row with an array for each field, which decodes faster than many rows. */
export const arrays = fields.map(([field, [column]]) => `array_agg("${column}") AS "${field}"`)
  .concat("array_agg(id) AS id").join()

export type Arrays = { readonly [Field in keyof Pet]-?: ReadonlyArray<unknown> }

/** Interns the statuses: all cached pets of a status share one string, which saves memory. */
const sharedStatuses = new Map<unknown, PetStatus>(PetStatus.literals.map((status) => [status, status]))

/** Checks the values by hand, faster than a schema. */
const toPet = (id: unknown, name: unknown, categoryId: unknown, status: unknown): Pet => {
  const shared = sharedStatuses.get(status)
  if (
    typeof id !== "bigint" || typeof name !== "string" || typeof categoryId !== "bigint" ||
    (shared === undefined && status !== null)
  ) throw new Error("The database returned a row that is not a valid pet")
  return shared === undefined ? { id, name, categoryId } : { id, name, categoryId, status: shared }
}

export const toPets = ({ categoryId, id, name, status, ...others }: Arrays): ReadonlyArray<Pet> => {
  // A compile error here means that the destructuring above lacks a field of `Pet`.
  void (others satisfies Record<string, never>)
  return id.map((value, index) => toPet(value, name[index], categoryId[index], status[index]))
}
