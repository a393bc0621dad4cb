/** What is measured: operations on a catalogue of a given size. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { ApiKeys } from "../src/ApiKeys.ts"
import * as Database from "../src/Database.ts"
import { random, temporaryDatabaseUrl } from "../test/Harness.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

export const operations = ["list of 20", "list, deep", "get", "create"] as const
export type Operation = typeof operations[number]

/** The ids of a catalogue of `pets`, and as many of them as matter, in no order. */
const shuffledIds = (pets: number): ReadonlyArray<number> => {
  const ids = Array.from({ length: Math.min(pets, 200_000) }, () => 1 + Math.floor(Math.random() * pets))
  return ids
}

/** Files of requests for `requests.lua` in `directory`. */
export const write = (directory: string, pets: number): Readonly<Record<Operation, string>> => {
  const ids = shuffledIds(pets)
  const lines: Record<Operation, ReadonlyArray<string>> = {
    "list of 20": ["GET /v1/pets"],
    "list, deep": ids.map((id) => `GET /v1/pets?cursor=${Buffer.from(String(id)).toString("base64url")}`),
    "get": ids.map((id) => `GET /v1/pets/${id}`),
    "create": [`POST /v1/pets ${newPet}`]
  }
  const file = (operation: Operation): string => {
    const path = join(directory, `${pets} ${operation}`)
    writeFileSync(path, lines[operation].join("\n"))
    return path
  }
  return {
    "list of 20": file("list of 20"),
    "list, deep": file("list, deep"),
    "get": file("get"),
    "create": file("create")
  }
}

/** Fills the table, and analyses it as autovacuum would. */
export const fill = (pets: number) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO pets (name, category_id, status)
      SELECT 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
      FROM generate_series(1, ${pets}) AS n`
    yield* sql`VACUUM ANALYZE pets`
  })

/** A key without limits that matter: what counting costs, and never a refusal. */
export const endless = { name: "bench", plan: "enterprise", limits: { perMinute: 2e9, perDay: 2e9 } } as const

/** A database of its own on `TEST_DATABASE_URL` with `pets` animals, and a key. */
export const database = Effect.fnUntraced(function*(pets: number) {
  const url = yield* temporaryDatabaseUrl
  const client = Database.migrate.pipe(Layer.provideMerge(PgClient.layer({ url: Redacted.make(url) })))
  const key = yield* Effect.gen(function*() {
    yield* fill(pets)
    const apiKeys = yield* ApiKeys
    return Redacted.value((yield* apiKeys.issue(endless)).key)
  }).pipe(Effect.provide(ApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(client))))
  return { url, key }
})
