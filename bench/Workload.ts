/** The measured operations, on a table of a given size. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../src/database/EmbeddedDatabase.ts"
import { keysOn, newUnlimitedKey, temporaryDatabaseUrl, temporaryDirectory } from "../test/support/Harness.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

/**
 * The kinds of requests: first pages, consecutive pages, random pages, random pets, and creates. Each request of
 * "idempotent" is a create with a new `Idempotency-Key`, as `PetstoreClient` sends it. The other servers ignore the
 * header, so their work is that of "create".
 */
export const operations = ["list of 20", "walk", "random pages", "get", "create", "idempotent"] as const
export type Operation = typeof operations[number]

const pageAfter = (id: number): string => `GET /v1/pets?cursor=${Buffer.from(String(id)).toString("base64url")}`

/** Random ids of a table of `pets`, at most 200,000. */
const someIds = (pets: number): ReadonlyArray<number> =>
  Array.from({ length: Math.min(pets, 200_000) }, () => 1 + Math.floor(Math.random() * pets))

/** The first ids of pages: 32 clients list the table page by page, and each requests one page in turn. */
const walks = (pets: number): ReadonlyArray<number> => {
  const starts = Array.from({ length: 32 }, () => Math.floor(Math.random() * pets))
  return Array.from(
    { length: 200_000 },
    (_, index) => 1 + ((starts[index % starts.length] ?? 0) + 20 * Math.floor(index / starts.length)) % pets
  )
}

export type Requests = Readonly<Record<Operation, string>>

/** Writes the files that `requests.lua` reads into `directory`. `pets` is the number of pets in the table. */
export const requests = (directory: string, pets: number): Requests => {
  const ids = someIds(pets)
  const file = (operation: Operation, lines: ReadonlyArray<string>): string =>
    write(directory, `${pets} ${operation}`, lines)
  return {
    "list of 20": file("list of 20", ["GET /v1/pets"]),
    "walk": file("walk", walks(pets).map(pageAfter)),
    "random pages": file("random pages", ids.map(pageAfter)),
    "get": file("get", ids.map((id) => `GET /v1/pets/${id}`)),
    "create": file("create", [`POST /v1/pets ${newPet}`]),
    "idempotent": file("idempotent", [`POST /v1/pets Idempotency-Key ${newPet}`])
  }
}

/** Writes a file for `requests.lua` into `directory`. */
export const write = (directory: string, name: string, lines: ReadonlyArray<string>): string => {
  const path = join(directory, name)
  writeFileSync(path, lines.join("\n"))
  return path
}

/** Inserts `pets` into an empty database, analyses it as autovacuum does, and issues `keys`. */
const fill = Effect.fnUntraced(function*(pets: number, keys: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO pets (name, category_id, status)
    SELECT 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
    FROM generate_series(1, ${pets}) AS n`
  yield* sql`VACUUM ANALYZE pets`
  return yield* Effect.replicateEffect(newUnlimitedKey, keys, { concurrency: 32 })
})

/** Creates a database on `TEST_DATABASE_URL` with `pets` pets and `keys` keys. */
export const database = Effect.fnUntraced(function*(pets: number, keys = 1) {
  const url = yield* temporaryDatabaseUrl
  // The insert may take longer than the server's statement timeout.
  const client = PgClient.layer({ url: Redacted.make(url), startupParameters: { statement_timeout: "0" } })
  const [key = "", ...others] = yield* Effect.provide(fill(pets, keys), keysOn(client))
  return { url, key, keys: [key, ...others] }
})

/** Creates a data directory with `pets` pets and a key. */
export const embedded = Effect.fnUntraced(function*(pets: number) {
  const directory = yield* temporaryDirectory
  const [key = ""] = yield* Effect.provide(fill(pets, 1), keysOn(EmbeddedDatabase.layer(directory)))
  return { directory, key }
})
