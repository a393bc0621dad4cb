/** The databases, the keys and the requests of a measurement. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { queryIn, temporaryDatabaseUrl } from "../test/support/Databases.ts"
import { send, unlimitedKeyOptions } from "../test/support/Process.ts"
import { freePort, temporaryDirectoryIn } from "../test/support/Temporary.ts"
import * as Contender from "./Contender.ts"

export const newPet = `{"name":"Rex","categoryId":1,"status":"available"}`

/** Every twentieth id is missing, as after deletes and failed inserts, so that each page has a gap. */
const gap = { every: 20, at: 7 }

/** Returns the text of a request. `line` is its method and path, and each line of `fields` ends in CRLF. */
export const request = (line: string, key?: string, fields = "", body = ""): string => {
  const authorization = key === undefined ? "" : `Authorization: Bearer ${key}\r\n`
  return `${line} HTTP/1.1\r\nHost: localhost\r\n${authorization}${fields}\r\n${body}`
}

type Draw = (ids: number) => number

/** Draws an id of a pet by a Zipf distribution with exponent 1. The popular pets are scattered over the table. */
const zipf: Draw = (ids) => 1 + Math.floor(ids ** Math.random()) * 7_919_993 % ids
const uniform: Draw = (ids) => 1 + Math.floor(Math.random() * ids)

/** Returns a UUID of version 7, which PetstoreClient sends as the idempotency key. */
const newIdempotencyKey = (): string => {
  const time = Date.now().toString(16).padStart(12, "0")
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
}

/** Returns a request with a key for one of the ids. The highest id is a multiple of 20. */
type Format = (key: string, ids: number) => string

const get = (draw: Draw): Format => (key, ids) => {
  const id = draw(ids)
  return request(`GET /v1/pets/${id % gap.every === gap.at ? id + 1 : id}`, key)
}
export const cursor = (id: number): string => Buffer.from(String(id)).toString("base64url")
const page = (draw: Draw): Format => (key, ids) => request(`GET /v1/pets?cursor=${cursor(draw(ids))}`, key)
const create = (fieldsOf: () => string): Format => (key) => {
  const fields = `Content-Type: application/json\r\nContent-Length: ${newPet.length}\r\n${fieldsOf()}`
  return request("POST /v1/pets", key, fields, newPet)
}

/**
 * First pages of 20 pets, single pets, pages of 20 at a position, and creates without and with an `Idempotency-Key`. Pets
 * and positions are drawn by a Zipf distribution, of which a cache holds most, or uniformly, of which it holds few. Pages
 * fill the cache, so they come after the pets.
 */
const formats = {
  "list": (key) => request("GET /v1/pets", key),
  "get": get(zipf),
  "uniform get": get(uniform),
  "page": page(zipf),
  "uniform page": page(uniform),
  "create": create(() => ""),
  "idempotent create": create(() => `Idempotency-Key: ${newIdempotencyKey()}\r\n`)
} satisfies Readonly<Record<string, Format>>
export type Operation = keyof typeof formats
export const operations = Struct.keys(formats)

/** Returns a function that returns the next request of an operation. It uses the keys in turn. */
export const requests = (operation: Operation, ids: number, keys: ReadonlyArray<string>): () => string => {
  let next = Math.floor(Math.random() * keys.length)
  return () => formats[operation](keys[next++ % keys.length] ?? "", ids)
}

/** Issues an API key through the management API at `address`, by default one whose limits are never reached. */
export const issueKey = (address: string, options: object = unlimitedKeyOptions) =>
  Effect.map(send(`${address}/admin/keys`, Contender.adminToken, "POST", options), ({ body }): string => body.key)

/** Inserts pets with ids up to `ids`, and analyses the table as autovacuum does. */
const insertPets = (ids: number) => (sql: SqlClient.SqlClient) => {
  const statements = [
    sql`INSERT INTO pets (id, name, category_id, status) OVERRIDING SYSTEM VALUE
      SELECT n, 'pet ' || n, n % 100, CASE n % 4 WHEN 0 THEN 'sold' WHEN 1 THEN 'pending' WHEN 2 THEN 'available' END
      FROM generate_series(1, ${ids}) AS n WHERE n % ${gap.every} <> ${gap.at}`,
    sql`SELECT setval(pg_get_serial_sequence('pets', 'id'), ${ids})`,
    sql`VACUUM ANALYZE pets`
  ]
  return ids === 0 ? Effect.void : Effect.all(statements, { discard: true })
}

/** Runs statements on the database at `url`, over one connection and without a timeout. */
export const queryAt = (url: string) => <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.scoped(Effect.provide(
    Effect.flatMap(SqlClient.SqlClient, use),
    PgClient.layer({ url: Redacted.make(url), maxConnections: 1, startupParameters: { statement_timeout: "0" } })
  ))

/** Creates the tables and issues the keys, with the service of `repository`. */
const issueKeys = Effect.fnUntraced(function*(
  env: Readonly<Record<string, string>>,
  keyCount: number,
  repository?: string
) {
  const management = String(yield* freePort)
  const issue = Effect.gen(function*() {
    yield* Contender.start("Petstore", { ...env, MANAGEMENT_PORT: management, LOG_LEVEL: "warn" }, repository)
    return yield* Effect.replicateEffect(issueKey(`http://127.0.0.1:${management}`), keyCount, { concurrency: 32 })
  })
  const keys = yield* Effect.scoped(issue)
  return { env, key: keys[0] ?? "", keys }
})

/** Creates a database on `TEST_DATABASE_URL` with keys, and with pets that have ids up to `ids`. */
export const database = Effect.fnUntraced(function*(ids: number, keyCount = 1, repository?: string) {
  const url = yield* temporaryDatabaseUrl
  const issued = yield* issueKeys({ DATABASE_URL: url }, keyCount, repository)
  yield* queryAt(url)(insertPets(ids))
  /** Parts of the command lines of the server's processes that work for this database. */
  const servers = [new URL(url).pathname.slice(1), "walwriter", "checkpointer", "background writer"]
  return { url, servers, ...issued }
})

/** Creates an embedded database, on the disk of this repository, because a temporary directory can be in memory. */
export const embedded = Effect.fnUntraced(function*(ids: number, keyCount: number) {
  const directory = yield* temporaryDirectoryIn(Contender.cache)
  const issued = yield* issueKeys({ DATA_DIR: directory }, keyCount)
  yield* queryIn(directory)(insertPets(ids))
  return { servers: [], ...issued }
})
