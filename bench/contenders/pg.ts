/** The statements through `pg`, prepared, over its pool. */
import { Pool, types } from "pg"
import * as Shared from "./shared.ts"

types.setTypeParser(types.builtins.INT8, Number)
const pool = new Pool({ connectionString: Shared.databaseUrl })

const { create, get, key, list } = Shared.statements

export const database = {
  key: async (hash: Buffer) => (await pool.query<Shared.Key>({ name: "key", text: key, values: [hash] })).rows[0],
  list: async (after: number, limit: number) =>
    (await pool.query<Shared.PetRow>({ name: "list", text: list, values: [after, limit] })).rows,
  get: async (id: number) => (await pool.query<Shared.PetRow>({ name: "get", text: get, values: [id] })).rows[0],
  create: async ({ categoryId, name, status }: Shared.NewPet) => {
    const values = [name, categoryId, status]
    return (await pool.query<{ id: number }>({ name: "create", text: create, values })).rows[0]?.id ?? 0
  }
}
