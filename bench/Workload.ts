/** The database, the keys and the requests of a measurement. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted, Schema, Struct } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { temporaryDatabaseUrl } from "../test/support/Databases.ts"
import { unlimitedKeyOptions } from "../test/support/Process.ts"
import { freePort } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

/** Every twentieth id is missing, as after deletes and failed inserts, so that each page has a gap. */
const gap = { every: 20, at: 7 }

/** Draws an id of a pet by a Zipf distribution with exponent 1. The popular pets are scattered over the table. */
const zipf = (ids: number): number => 1 + Math.floor(ids ** Math.random()) * 7_919_993 % ids
const uniform = (ids: number): number => 1 + Math.floor(Math.random() * ids)

const get = (id: number) => `GET /v1/pets/${id}`
const page = (id: number) => `GET /v1/pets?cursor=${Buffer.from(String(id)).toString("base64url")}`

/** The requests of an operation, for ids that `draw` returns. */
interface Format {
  readonly format: (id: number) => string
  readonly draw?: (ids: number) => number
}

/**
 * First pages of 20 pets, single pets, pages of 20 at a position, and creates without and with an `Idempotency-Key`. Pets
 * and positions are drawn by a Zipf distribution, of which a cache holds most, or uniformly, of which it holds few. Pages
 * fill the cache, so they come after the pets.
 */
const formats = {
  "list": { format: () => "GET /v1/pets" },
  "get": { format: get, draw: zipf },
  "uniform get": { format: get, draw: uniform },
  "page": { format: page, draw: zipf },
  "uniform page": { format: page, draw: uniform },
  "create": { format: () => `POST /v1/pets ${newPet}` },
  "idempotent create": { format: () => `POST /v1/pets Idempotency-Key ${newPet}` }
}
export type Operation = keyof typeof formats
export const operations = Struct.keys(formats)

/** Returns enough requests of an operation for a load. `ids` is the highest id, and a multiple of 20. */
export const requests = (operation: Operation, ids: number): ReadonlyArray<string> => {
  const { draw, format }: Format = formats[operation]
  if (draw === undefined) return [format(0)]
  return Array.from({ length: 100_000 }, () => {
    const id = draw(ids)
    return format(id % gap.every === gap.at ? id + 1 : id)
  })
}

/** Writes a file for `requests.lua` into `directory`. */
export const write = (directory: string, name: string, lines: ReadonlyArray<string>): string => {
  const path = join(directory, name)
  writeFileSync(path, lines.join("\n"))
  return path
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

/** Inserts pets with ids up to `ids`, and analyses the table as autovacuum does. */
const insertPets = Effect.fnUntraced(function*(ids: number) {
  if (ids === 0) return
  const sql = yield* PgClient.PgClient
  yield* sql`INSERT INTO pets (id, name, category_id, status) OVERRIDING SYSTEM VALUE
    SELECT n, 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
    FROM generate_series(1, ${ids}) AS n WHERE n % ${gap.every} <> ${gap.at}`
  yield* sql`SELECT setval(pg_get_serial_sequence('pets', 'id'), ${ids})`
  yield* sql`VACUUM ANALYZE pets`
})

/**
 * Creates a database on `TEST_DATABASE_URL` with keys, and with pets that have ids up to `ids`. The service of the
 * repository in `directory` creates the tables and issues the keys.
 */
export const database = Effect.fnUntraced(function*(ids: number, keyCount = 1, directory?: string) {
  const url = yield* temporaryDatabaseUrl
  const fill = Effect.gen(function*() {
    const management = String(yield* freePort)
    yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: management, LOG_LEVEL: "warn" }, directory)
    yield* Effect.provide(
      insertPets(ids),
      PgClient.layer({ url: Redacted.make(url), startupParameters: { statement_timeout: "0" } })
    )
    return yield* Effect.replicateEffect(issueKey(`http://127.0.0.1:${management}`), keyCount, { concurrency: 32 })
  })
  const [key = "", ...others] = yield* Effect.scoped(fill)
  /** Parts of the command lines of the server's processes that work for this database. */
  const servers = [new URL(url).pathname.slice(1), "walwriter", "checkpointer", "background writer"]
  return { url, key, keys: [key, ...others], servers }
})
