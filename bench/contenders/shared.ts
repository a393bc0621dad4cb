/**
 * The common part of the peers in JavaScript: the work of a request without the framework and the driver. The peers have no
 * filter by status, because the load has none.
 */
import { createHash } from "node:crypto"

export interface Key {
  readonly id: string
  readonly perMinute: number
  readonly perDay: number
}

export interface NewPet {
  readonly name: string
  readonly categoryId: number
  readonly status?: string
}

/** A row of `pets`. Bun's driver returns a bigint as a string. */
interface PetRow {
  readonly id: number | string
  readonly name: string
  readonly categoryId: number | string
  readonly status: string | null
}

interface IdRow {
  readonly id: number | string
}

/** Runs a prepared statement of `name`. */
export type Query = <Row>(name: string, text: string, values: ReadonlyArray<unknown>) => Promise<ReadonlyArray<Row>>

const columns = `id, name, category_id AS "categoryId", status`

/** Returns the pet of a row. An absent status is no member of its JSON. */
const toPet = ({ categoryId, id, name, status }: PetRow) =>
  status === null
    ? { id: Number(id), name, categoryId: Number(categoryId) }
    : { id: Number(id), name, categoryId: Number(categoryId), status }

export interface Selection {
  readonly limit: number
  readonly cursor?: string | undefined
}

/** The outcome of a create: a new pet, the pet of an earlier create with the same key, or `"reused"`. */
export type Created = { readonly id: number; readonly isReplay: boolean } | "reused"

/** The seconds for which pets and full pages are cached, or 0. */
export const petCacheSeconds = Number(process.env.PET_CACHE_SECONDS ?? 0)

/** Returns a function that reads a value, and caches it under a name if `isFinal`. */
const makeCache = <Value>(seconds: number, isFinal: (value: Value) => boolean) => {
  const cache = new Map<string | number, { readonly value: Value; readonly until: number }>()
  return async (name: string | number, read: () => Promise<Value>): Promise<Value> => {
    const cached = cache.get(name)
    if (cached !== undefined && cached.until > Date.now()) return cached.value
    const value = await read()
    if (seconds > 0 && isFinal(value)) cache.set(name, { value, until: Date.now() + seconds * 1_000 })
    return value
  }
}
const isFound = (value: unknown): boolean => value !== undefined

interface Page {
  readonly pets: ReadonlyArray<ReturnType<typeof toPet>>
  /** The `Link` to the next page. A page without it is not full, so that creates change it. */
  readonly link?: string
}

const cachedPet = makeCache<ReturnType<typeof toPet> | undefined>(petCacheSeconds, isFound)
const cachedPage = makeCache<Page>(petCacheSeconds, ({ link }) => link !== undefined)

/** The statements of the service's operations on its tables. */
export const makeDatabase = (query: Query) => ({
  findKey: async (hash: Buffer): Promise<Key | undefined> => {
    const text = `SELECT k.id, k.per_minute AS "perMinute", k.per_day AS "perDay"
      FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
      WHERE s.hash = $1 AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())`
    return (await query<Key>("key", text, [hash]))[0]
  },
  list: ({ cursor = "", limit }: Selection): Promise<Page> =>
    cachedPage(`${cursor} ${limit}`, async () => {
      const after = Number(Buffer.from(cursor, "base64url").toString())
      const text = `SELECT ${columns} FROM pets WHERE id > $1 ORDER BY id LIMIT $2`
      const rows = await query<PetRow>("list", text, [after, limit + 1])
      const pets = rows.slice(0, limit).map(toPet)
      const last = pets.at(-1)
      if (last === undefined || rows.length <= limit) return { pets }
      const next = Buffer.from(String(last.id)).toString("base64url")
      return { pets, link: `</v1/pets?limit=${limit}&cursor=${next}>; rel="next"` }
    }),
  find: (id: number) =>
    cachedPet(id, async () => {
      const [row] = await query<PetRow>("get", `SELECT ${columns} FROM pets WHERE id = $1`, [id])
      return row === undefined ? undefined : toPet(row)
    }),
  create: async (pet: NewPet, owner: string, idempotencyKey: string | undefined): Promise<Created> => {
    const { categoryId, name, status = null } = pet
    const insert = "INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id"
    if (idempotencyKey === undefined) {
      const [row] = await query<IdRow>("create", insert, [name, categoryId, status])
      return { id: Number(row?.id), isReplay: false }
    }
    const request = createHash("sha256").update(JSON.stringify([name, categoryId, status])).digest()
    // A key that is in use fails the statement, which then stores nothing.
    const once = `WITH pet AS (${insert}), claim AS (
        INSERT INTO idempotency_keys (owner, key, request, pet_id, expires_at)
        SELECT $4, $5, $6, id, now() + interval '24 hours' FROM pet
      ) SELECT id FROM pet`
    const values = [name, categoryId, status, owner, idempotencyKey, request]
    try {
      const [row] = await query<IdRow>("create once", once, values)
      return { id: Number(row?.id), isReplay: false }
    } catch (error) {
      const isUsed = error instanceof Error && "constraint" in error && error.constraint === "idempotency_keys_pkey"
      if (!isUsed) throw error
    }
    const text = "SELECT pet_id AS id, request FROM idempotency_keys WHERE owner = $1 AND key = $2"
    const [used] = await query<IdRow & { readonly request: Buffer }>("used", text, [owner, idempotencyKey])
    return used !== undefined && request.equals(used.request) ? { id: Number(used.id), isReplay: true } : "reused"
  }
})

/** Returns a function that finds the key of an `Authorization` header, and caches a valid key for one second. */
export const makeAuthenticate = (find: (hash: Buffer) => Promise<Key | undefined>) => {
  const cached = makeCache<Key | undefined>(1, isFound)
  return async (authorization: string | null | undefined): Promise<Key | undefined> => {
    if (authorization?.startsWith("Bearer ") !== true) return undefined
    const hash = createHash("sha256").update(authorization.slice("Bearer ".length)).digest()
    return cached(hash.toString("base64"), () => find(hash))
  }
}

interface Window {
  count: number
  endsAt: number
}
const states = new Map<string, { readonly minute: Window; readonly day: Window }>()

const openWindow = (window: Window, now: number, length: number): void => {
  if (window.endsAt > now) return
  window.count = 0
  window.endsAt = now + length
}

/** Charges a request to both windows of a key, or to neither, and returns the headers. */
export const charge = ({ id, perDay, perMinute }: Key) => {
  const now = Date.now()
  let state = states.get(id)
  if (state === undefined) {
    states.set(id, state = { minute: { count: 0, endsAt: 0 }, day: { count: 0, endsAt: 0 } })
  }
  const { day, minute } = state
  openWindow(minute, now, 60_000)
  openWindow(day, now, 86_400_000)
  const isAllowed = minute.count < perMinute && day.count < perDay
  if (isAllowed) {
    minute.count++
    day.count++
  }
  const isDay = perDay - day.count < perMinute - minute.count
  const { count, endsAt } = isDay ? day : minute
  const limit = isDay ? perDay : perMinute
  const headers: Record<string, string> = {
    "x-ratelimit-limit": String(limit),
    "x-ratelimit-remaining": String(limit - count),
    "x-ratelimit-reset": String(Math.ceil(endsAt / 1000))
  }
  if (!isAllowed) headers["retry-after"] = String(Math.ceil((endsAt - now) / 1000))
  return { isAllowed, headers }
}

let lines = ""
/** Writes the log line of a request. The lines of one turn of the event loop are written together. */
export const log = (fields: {
  readonly method: string
  readonly route: string
  readonly status: number
  readonly durationMs: number
  readonly keyId: string
  readonly requestId: string
}): void => {
  if (lines === "") {
    setImmediate(() => {
      process.stdout.write(lines)
      lines = ""
    })
  }
  lines += `${JSON.stringify({ message: "request", level: "INFO", timestamp: new Date().toISOString(), ...fields })}\n`
}

const error = (status: number, code: string, message: string) => ({ code, message, status })
export const errors = {
  invalid: error(400, "invalid_request", "The request is invalid."),
  unauthorized: error(401, "invalid_api_key", "The API key is unknown."),
  notFound: error(404, "not_found", "There is no such pet."),
  reused: error(422, "idempotency_key_reused", "The idempotency key was used for another pet."),
  limited: error(429, "rate_limit_exceeded", "The rate limit is exceeded."),
  internal: error(500, "internal_error", "The request failed.")
}
export type ErrorBody = typeof errors[keyof typeof errors]

export const port = Number(process.env.PORT ?? 0)
export const host = "127.0.0.1"
export const databaseUrl = process.env.DATABASE_URL ?? ""
