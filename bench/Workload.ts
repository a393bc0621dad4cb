/** What is measured: operations on a catalogue of a given size. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import * as EmbeddedDatabase from "../src/database/EmbeddedDatabase.ts"
import { keysOn, newEndlessKey, temporaryDatabaseUrl, temporaryDirectory } from "../test/support/Harness.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

/** First pages, pages one after the other from anywhere on, pages at random, animals at random, additions. */
export const operations = ["list of 20", "walk", "random pages", "get", "create"] as const
export type Operation = typeof operations[number]

const pageAfter = (id: number): string => `GET /v1/pets?cursor=${Buffer.from(String(id)).toString("base64url")}`

/** Ids of a catalogue of `pets`, as many as matter, in no order. */
const someIds = (pets: number): ReadonlyArray<number> =>
  Array.from({ length: Math.min(pets, 200_000) }, () => 1 + Math.floor(Math.random() * pets))

/** Where the pages of 32 walks begin, a page of each in turn. */
const walks = (pets: number): ReadonlyArray<number> => {
  const starts = Array.from({ length: 32 }, () => Math.floor(Math.random() * pets))
  return Array.from(
    { length: 200_000 },
    (_, nth) => 1 + ((starts[nth % starts.length] ?? 0) + 20 * Math.floor(nth / starts.length)) % pets
  )
}

export type Requests = Readonly<Record<Operation, string>>

/** Files for `requests.lua` in `directory`, of the requests for a catalogue of `pets`. */
export const requests = (directory: string, pets: number): Requests => {
  const ids = someIds(pets)
  const file = (operation: Operation, lines: ReadonlyArray<string>): string =>
    write(directory, `${pets} ${operation}`, lines)
  return {
    "list of 20": file("list of 20", ["GET /v1/pets"]),
    "walk": file("walk", walks(pets).map(pageAfter)),
    "random pages": file("random pages", ids.map(pageAfter)),
    "get": file("get", ids.map((id) => `GET /v1/pets/${id}`)),
    "create": file("create", [`POST /v1/pets ${newPet}`])
  }
}

/** A file for `requests.lua` in `directory`. */
export const write = (directory: string, name: string, lines: ReadonlyArray<string>): string => {
  const path = join(directory, name)
  writeFileSync(path, lines.join("\n"))
  return path
}

/** Fills an empty database with `pets`, and analyses it as autovacuum would; gives as many keys. */
const fill = Effect.fnUntraced(function*(pets: number, keys: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO pets (name, category_id, status)
    SELECT 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
    FROM generate_series(1, ${pets}) AS n`
  yield* sql`VACUUM ANALYZE pets`
  return yield* Effect.replicateEffect(newEndlessKey, keys, { concurrency: 32 })
})

/** A database of its own on `TEST_DATABASE_URL` with `pets` animals, and as many keys. */
export const database = Effect.fnUntraced(function*(pets: number, keys = 1) {
  const url = yield* temporaryDatabaseUrl
  // However long it takes.
  const client = PgClient.layer({ url: Redacted.make(url), startupParameters: { statement_timeout: "0" } })
  const [key = "", ...others] = yield* Effect.provide(fill(pets, keys), keysOn(client))
  return { url, key, keys: [key, ...others] }
})

/** A data directory of its own with `pets` animals, and a key. */
export const embedded = Effect.fnUntraced(function*(pets: number) {
  const directory = yield* temporaryDirectory
  const [key = ""] = yield* Effect.provide(fill(pets, 1), keysOn(EmbeddedDatabase.layer(directory)))
  return { directory, key }
})
