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

/** The statements of the service's operations on its tables. */
export const makeDatabase = (query: Query) => ({
  findKey: async (hash: Buffer): Promise<Key | undefined> => {
    const text = `SELECT k.id, k.per_minute AS "perMinute", k.per_day AS "perDay"
      FROM api_key_secrets s JOIN api_keys k ON k.id = s.key_id
      WHERE s.hash = $1 AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())`
    return (await query<Key>("key", text, [hash]))[0]
  },
  /** Returns a page, and the `Link` to the next page if there is one. */
  list: async ({ cursor, limit }: Selection) => {
    const after = cursor === undefined ? 0 : Number(Buffer.from(cursor, "base64url").toString())
    const text = `SELECT ${columns} FROM pets WHERE id > $1 ORDER BY id LIMIT $2`
    const rows = await query<PetRow>("list", text, [after, limit + 1])
    const pets = rows.slice(0, limit).map(toPet)
    const last = pets.at(-1)
    if (last === undefined || rows.length <= limit) return { pets }
    const next = Buffer.from(String(last.id)).toString("base64url")
    return { pets, link: `</v1/pets?limit=${limit}&cursor=${next}>; rel="next"` }
  },
  find: async (id: number) => {
    const [row] = await query<PetRow>("get", `SELECT ${columns} FROM pets WHERE id = $1`, [id])
    return row === undefined ? undefined : toPet(row)
  },
  create: async (pet: NewPet, owner: string, idempotencyKey: string | undefined): Promise<Created> => {
    const { categoryId, name, status = null } = pet
    const insert = "INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id"
    if (idempotencyKey === undefined) {
      const [row] = await query<{ readonly id: number | string }>("create", insert, [name, categoryId, status])
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
      const [row] = await query<{ readonly id: number | string }>("create once", once, values)
      return { id: Number(row?.id), isReplay: false }
    } catch (error) {
      if (!(error instanceof Error && "constraint" in error && error.constraint === "idempotency_keys_pkey")) {
        throw error
      }
    }
    const [used] = await query<{ readonly id: number | string; readonly request: Buffer }>(
      "used",
      "SELECT pet_id AS id, request FROM idempotency_keys WHERE owner = $1 AND key = $2",
      [owner, idempotencyKey]
    )
    return used !== undefined && request.equals(used.request) ? { id: Number(used.id), isReplay: true } : "reused"
  }
})

/** Returns a function that finds the key of an `Authorization` header, and caches a valid key for one second. */
export const makeAuthenticate = (find: (hash: Buffer) => Promise<Key | undefined>) => {
  const cache = new Map<string, { readonly key: Key; readonly until: number }>()
  return async (authorization: string | null | undefined): Promise<Key | undefined> => {
    if (authorization?.startsWith("Bearer ") !== true) return undefined
    const hash = createHash("sha256").update(authorization.slice("Bearer ".length)).digest()
    const name = hash.toString("base64")
    const cached = cache.get(name)
    if (cached !== undefined && cached.until > Date.now()) return cached.key
    const key = await find(hash)
    if (key === undefined) cache.delete(name)
    else cache.set(name, { key, until: Date.now() + 1_000 })
    return key
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
