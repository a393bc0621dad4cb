/** The database, the keys and the requests of a measurement. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted, Schema } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { freePort, temporaryDatabaseUrl, unlimitedKeyOptions } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

/** First pages of 20 pets, pages of 20 at random positions, random pets, and creates without and with an `Idempotency-Key`. */
export const operations = ["list", "random page", "get", "create", "idempotent"] as const
export type Operation = typeof operations[number]

/** Writes a file for `requests.lua` into `directory`. */
export const write = (directory: string, name: string, lines: ReadonlyArray<string>): string => {
  const path = join(directory, name)
  writeFileSync(path, lines.join("\n"))
  return path
}

export type Requests = Readonly<Record<Operation, string>>

/** Writes the files of each operation into `directory`. `pets` is the number of pets in the table. */
export const requests = (directory: string, pets: number): Requests => {
  const ids = Array.from({ length: 200_000 }, () => 1 + Math.floor(Math.random() * pets))
  const page = (id: number) => `GET /v1/pets?cursor=${Buffer.from(String(id)).toString("base64url")}`
  const lines = {
    "list": ["GET /v1/pets"],
    "random page": ids.map(page),
    "get": ids.map((id) => `GET /v1/pets/${id}`),
    "create": [`POST /v1/pets ${newPet}`],
    "idempotent": [`POST /v1/pets Idempotency-Key ${newPet}`]
  }
  const file = (operation: Operation) => write(directory, operation, lines[operation])
  return {
    "list": file("list"),
    "random page": file("random page"),
    "get": file("get"),
    "create": file("create"),
    "idempotent": file("idempotent")
  }
}

const decodeIssued = Schema.decodeUnknownEffect(Schema.Struct({ key: Schema.String }))

/** Issues an API key through the management API at `address`, by default one whose limits are never reached. */
export const issueKey = (address: string, options: object = unlimitedKeyOptions) =>
  Effect.promise(() =>
    fetch(`${address}/admin/keys`, {
      method: "POST",
      headers: { "authorization": `Bearer ${Contender.adminToken}`, "content-type": "application/json" },
      body: JSON.stringify(options)
    }).then((response) => response.json())
  ).pipe(Effect.flatMap(decodeIssued), Effect.map(({ key }) => key))

/** Inserts pets, and analyses the table as autovacuum does. */
const insertPets = Effect.fnUntraced(function*(pets: number) {
  const sql = yield* PgClient.PgClient
  yield* sql`INSERT INTO pets (name, category_id, status)
    SELECT 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
    FROM generate_series(1, ${pets}) AS n`
  yield* sql`VACUUM ANALYZE pets`
})

/**
 * Creates a database on `TEST_DATABASE_URL` with pets and keys. A process of the service, whose main file can be `main`,
 * creates the tables and issues the keys.
 */
export const database = Effect.fnUntraced(function*(pets: number, keyCount = 1, main?: string) {
  const url = yield* temporaryDatabaseUrl
  const fill = Effect.gen(function*() {
    const management = String(yield* freePort)
    yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: management, LOG_LEVEL: "warn" }, main)
    yield* Effect.provide(
      insertPets(pets),
      PgClient.layer({ url: Redacted.make(url), startupParameters: { statement_timeout: "0" } })
    )
    return yield* Effect.replicateEffect(issueKey(`http://127.0.0.1:${management}`), keyCount, { concurrency: 32 })
  })
  const [key = "", ...others] = yield* Effect.scoped(fill)
  return { url, key, keys: [key, ...others] }
})
