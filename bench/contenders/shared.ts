/** The common part of the compared services: the work of a request without the framework. */
import { createHash } from "node:crypto"

export interface Key {
  readonly id: string
  readonly perMinute: number
  readonly perDay: number
}

export interface Pet {
  readonly id: number
  readonly name: string
  readonly categoryId: number
  readonly status?: string
}

export type PetRow = Omit<Pet, "status"> & { readonly status: string | null }

export interface NewPet {
  readonly name: string
  readonly categoryId: number
  readonly status?: string | undefined
}

/** The statements, with PostgreSQL's placeholders. */
export const statements = {
  key: `SELECT k.id, k.per_minute AS "perMinute", k.per_day AS "perDay"
    FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
    WHERE s.hash = $1 AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())`,
  list: `SELECT id, name, category_id AS "categoryId", status FROM pets WHERE id > $1 ORDER BY id LIMIT $2`,
  get: `SELECT id, name, category_id AS "categoryId", status FROM pets WHERE id = $1`,
  create: `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id`
}

/** Returns the pet of a row. An absent status is no member of its JSON. */
export const toPet = ({ id, name, categoryId, status }: PetRow): Pet =>
  status === null ? { id, name, categoryId } : { id, name, categoryId, status }

export const after = (cursor: string | undefined): number =>
  cursor === undefined ? 0 : Number(Buffer.from(cursor, "base64url").toString())

/** Returns a page from one row more than it holds, and the `Link` to the next page. */
export const page = (rows: ReadonlyArray<PetRow>, limit: number): { pets: Array<Pet>; link?: string } => {
  const pets = rows.slice(0, limit).map(toPet)
  const last = pets.at(-1)
  if (last === undefined || rows.length <= limit) return { pets }
  const cursor = Buffer.from(String(last.id)).toString("base64url")
  return { pets, link: `</v1/pets?limit=${limit}&cursor=${cursor}>; rel="next"` }
}

const cacheMs = 1_000

/** Returns a function that verifies the bearer key of an `Authorization` header, and caches a valid key for one second. */
export const keys = (find: (hash: Buffer) => Promise<Key | undefined>) => {
  const cache = new Map<string, { readonly key: Key; readonly until: number }>()
  return async (authorization: string | undefined): Promise<Key | undefined> => {
    if (authorization === undefined || !authorization.startsWith("Bearer ")) return undefined
    const hash = createHash("sha256").update(authorization.slice("Bearer ".length)).digest()
    const name = hash.toString("base64")
    const cached = cache.get(name)
    if (cached !== undefined && cached.until > Date.now()) return cached.key
    const key = await find(hash)
    if (key === undefined) cache.delete(name)
    else cache.set(name, { key, until: Date.now() + cacheMs })
    return key
  }
}

export const unauthorized = { code: "invalid_api_key", message: "The API key is unknown.", status: 401 }
export const notFound = { code: "not_found", message: "There is no such pet.", status: 404 }

export const port = Number(process.env.PORT ?? 0)
export const host = "127.0.0.1"
export const databaseUrl = process.env.DATABASE_URL ?? ""
/** The Redis server that counts requests, or `undefined` to count in the process. */
export const redisUrl = process.env.REDIS_URL
