/**
 * API keys: how they are made, and who holds the one that a request came with (SPEC §5).
 *
 * A key is `psk_`, 32 random base62 characters (190 bits) and a checksum of 6, so that a mistyped or made-up key is
 * refused without a look-up and a secret scanner can tell a real one. Only its SHA-256 is kept: with that many random
 * bits, a slow hash would add nothing but time.
 */
import { Clock, Context, DateTime, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { crc32 } from "node:zlib"
import type { CurrentKey } from "./api/Auth.ts"
import { InvalidApiKey } from "./api/Errors.ts"
import { type Limits, type Plan, planLimits } from "./api/Plans.ts"

/** A key as it is handed out: the only time that `key`, the secret, is known. */
export interface IssuedKey {
  readonly id: string
  readonly name: string
  readonly plan: Plan
  readonly limits: Limits
  readonly key: Redacted.Redacted
}

export class ApiKeys extends Context.Service<ApiKeys, {
  /** Makes a key on one of the plans whose limits are published. */
  issue(options: { readonly name: string; readonly plan: Exclude<Plan, "enterprise"> }): Effect.Effect<IssuedKey>

  /** Who holds `key`. Fails unless it was issued here, has not expired and is not revoked. */
  verify(key: Redacted.Redacted): Effect.Effect<CurrentKey["Service"], InvalidApiKey>

  /** Whether any key was ever issued. */
  readonly exist: Effect.Effect<boolean>
}>()("petstore/ApiKeys") {
  static readonly layer = Layer.effect(
    ApiKeys,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      return yield* make({
        insert: (key) =>
          Effect.asVoid(sql`INSERT INTO api_keys ${
            sql.insert({
              id: key.id,
              name: key.name,
              hash: key.hash,
              plan: key.plan,
              created_at: DateTime.toDateUtc(key.createdAt)
            })
          }`).pipe(Effect.orDie),
        findByHash: (hash) =>
          sql<Row>`
            SELECT id, plan, per_minute AS "perMinute", per_day AS "perDay",
              expires_at AS "expiresAt", revoked_at AS "revokedAt"
            FROM api_keys WHERE hash = ${hash}
          `.pipe(Effect.map(([row]) => row === undefined ? undefined : fromRow(row)), Effect.orDie),
        exist: sql`SELECT 1 FROM api_keys LIMIT 1`.pipe(Effect.map((rows) => rows.length > 0), Effect.orDie)
      })
    })
  )

  /** In this process's memory, for tests. */
  static readonly layerMemory = Layer.effect(
    ApiKeys,
    Effect.suspend(() => {
      const keys = new Map<string, StoredKey>()
      return make({
        insert: (key) =>
          Effect.sync(() => {
            keys.set(key.hash.toString("hex"), {
              id: key.id,
              plan: key.plan,
              limits: planLimits[key.plan],
              expiresAt: null,
              revokedAt: null
            })
          }),
        findByHash: (hash) => Effect.sync(() => keys.get(hash.toString("hex"))),
        exist: Effect.sync(() => keys.size > 0)
      })
    })
  )
}

/** What is kept of a key. */
interface StoredKey {
  readonly id: string
  readonly plan: Plan
  readonly limits: Limits
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
}

interface Store {
  insert(key: {
    readonly id: string
    readonly name: string
    readonly hash: Buffer
    readonly plan: Exclude<Plan, "enterprise">
    readonly createdAt: DateTime.Utc
  }): Effect.Effect<void>
  findByHash(hash: Buffer): Effect.Effect<StoredKey | undefined>
  readonly exist: Effect.Effect<boolean>
}

/** The rules of keys, over a store that only keeps them. */
const make = Effect.fnUntraced(function*(store: Store) {
  const random = yield* SecureRandom.SecureRandom

  const randomText = (length: number) =>
    random.intBetween(0, base62.length - 1).pipe(
      Effect.map((index) => base62.charAt(index)),
      Effect.replicateEffect(length),
      Effect.map((characters) => characters.join(""))
    )

  return ApiKeys.of({
    exist: store.exist,

    issue: Effect.fn("ApiKeys.issue")(function*({ name, plan }) {
      const id = `key_${yield* randomText(16)}`
      const secret = yield* randomText(secretLength)
      const key = prefix + secret + checksum(secret)
      yield* store.insert({ id, name, hash: hash(key), plan, createdAt: yield* DateTime.now })
      return { id, name, plan, limits: planLimits[plan], key: Redacted.make(key) }
    }),

    verify: Effect.fnUntraced(function*(key) {
      const text = Redacted.value(key)
      if (!isWellFormed(text)) return yield* invalid
      const stored = yield* store.findByHash(hash(text))
      if (stored === undefined || stored.revokedAt !== null) return yield* invalid
      const now = yield* Clock.currentTimeMillis
      if (stored.expiresAt !== null && stored.expiresAt.getTime() <= now) return yield* invalid
      return { id: stored.id, plan: stored.plan, limits: stored.limits }
    })
  })
})

const invalid = Effect.fail(new InvalidApiKey({ message: "The API key is unknown, expired or revoked." }))

const prefix = "psk_"
const secretLength = 32
const checksumLength = 6
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** CRC-32 in base62: six characters hold 35 bits. */
const checksum = (secret: string): string => {
  let rest = crc32(secret)
  let text = ""
  for (let i = 0; i < checksumLength; i++) {
    text = base62.charAt(rest % base62.length) + text
    rest = Math.floor(rest / base62.length)
  }
  return text
}

const format = new RegExp(`^${prefix}([0-9A-Za-z]{${secretLength}})([0-9A-Za-z]{${checksumLength}})$`)

const isWellFormed = (key: string): boolean => {
  const match = format.exec(key)
  return match !== null && checksum(match[1] ?? "") === match[2]
}

const hash = (key: string): Buffer => createHash("sha256").update(key).digest()

interface Row {
  readonly id: string
  readonly plan: Plan
  readonly perMinute: number | null
  readonly perDay: number | null
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
}

const fromRow = ({ perDay, perMinute, ...row }: Row): StoredKey => ({
  ...row,
  // The table's constraint gives Enterprise keys both numbers, and the others none.
  limits: row.plan === "enterprise" ? { perMinute: perMinute ?? 0, perDay: perDay ?? 0 } : planLimits[row.plan]
})
