/** The statements through `postgres` (postgres.js), which prepares them. */
import postgres from "postgres"
import * as Shared from "./shared.ts"

const sql = postgres(Shared.databaseUrl, { types: { int8: { to: 20, from: [20], serialize: String, parse: Number } } })

const { create, get, key, list } = Shared.statements
const prepared = { prepare: true }

export const database = {
  key: async (hash: Buffer) => (await sql.unsafe<Array<Shared.Key>>(key, [hash], prepared))[0],
  list: (after: number, limit: number): Promise<ReadonlyArray<Shared.PetRow>> =>
    sql.unsafe<Array<Shared.PetRow>>(list, [after, limit], prepared),
  get: async (id: number) => (await sql.unsafe<Array<Shared.PetRow>>(get, [id], prepared))[0],
  create: async ({ categoryId, name, status }: Shared.NewPet) =>
    (await sql.unsafe<Array<{ id: number }>>(create, [name, categoryId, status ?? null], prepared))[0]?.id ?? 0
}
