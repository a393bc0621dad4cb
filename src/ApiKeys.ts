/** API keys: how they are issued, changed and ended, and who holds the one that a request came with (SPEC §5). */
import { Clock, Context, DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import * as KeyCache from "./api-keys/KeyCache.ts"
import { type KeySelection, type KeyStore, type ListedKeys, memoryStore, sqlStore } from "./api-keys/KeyStore.ts"
import * as Secret from "./api-keys/Secret.ts"
import type { CurrentKey } from "./api/Auth.ts"
import { Conflict, InvalidApiKey, InvalidRequest, NotFound } from "./api/Errors.ts"
import type { ApiKey, IssuedKey, NewKey } from "./api/Keys.ts"
import { planLimits } from "./api/Plans.ts"
import * as WriteBehind from "./database/WriteBehind.ts"

export class ApiKeys extends Context.Service<ApiKeys, {
  /** Makes a key. Fails if it would have expired already, or is an Enterprise key without limits. */
  issue(key: NewKey): Effect.Effect<IssuedKey, InvalidRequest>

  /** A page of the keys that were ever issued, oldest first. The cost does not grow with the number of keys. */
  list(selection: KeySelection): Effect.Effect<ListedKeys>

  /** The key with this id. Fails if none was ever issued under it. */
  find(id: string): Effect.Effect<ApiKey, NotFound>

  /**
   * Gives a key another secret; the ones before it work for `grace` longer. Fails if the key is revoked or expired, or
   * if more than `maxWorkingSecrets` would work. Without `grace` only the new secret works, so that this never fails
   * for their number.
   */
  rotate(id: string, grace: Duration.Duration): Effect.Effect<IssuedKey, NotFound | Conflict>

  /** Ends a key for good: here at once, in every other process within a second. Fails if it is revoked already. */
  revoke(id: string): Effect.Effect<void, NotFound | Conflict>

  /**
   * Who holds `key` when the effect is run, as often as it is run: it hashes the key once, and notes its use once a
   * minute. Fails unless it was issued here, has not expired and is not revoked.
   */
  verify(key: Redacted.Redacted): Effect.Effect<CurrentKey["Service"], InvalidApiKey>
}>()("petstore/ApiKeys") {
  /** On PostgreSQL, with the tables of `migrations/`. */
  static readonly layer = Layer.effect(ApiKeys, Effect.suspend(() => Effect.flatMap(sqlStore, make)))

  /** In this process's memory, for tests. */
  static readonly layerMemory = Layer.effect(ApiKeys, Effect.suspend(() => Effect.flatMap(memoryStore, make)))
}

const minute = 60_000

/** Secrets of one key that work at the same time: the current one and those in their grace period. */
const maxWorkingSecrets = 5

const make = Effect.fnUntraced(function*(store: KeyStore) {
  const random = yield* SecureRandom.SecureRandom
  const clock = yield* Clock.Clock
  const cache = yield* KeyCache.make(store)

  // When keys were last used, to the minute.
  const uses = yield* WriteBehind.make({
    interval: "10 seconds",
    write: store.recordUses,
    warning: "Uses of keys cannot be recorded"
  })

  const find = Effect.fnUntraced(function*(id: string) {
    return (yield* store.find(id)) ?? (yield* new NotFound({ message: `There is no key ${id}.` }))
  })

  return ApiKeys.of({
    list: store.list,
    find,

    issue: Effect.fn("ApiKeys.issue")(function*({ expiresAt = null, limits, name, plan }) {
      const createdAt = yield* DateTime.now
      if (hasEnded(expiresAt, createdAt.epochMilliseconds)) {
        return yield* new InvalidRequest({ message: "Invalid request: body.expiresAt: expected an instant to come." })
      }
      const chosen = plan === "enterprise" ? limits : planLimits[plan]
      if (chosen === undefined) {
        return yield* new InvalidRequest({ message: "Invalid request: body.limits: required on plan enterprise." })
      }
      const key: ApiKey = {
        id: `key_${yield* Secret.randomText(16)}`,
        name,
        plan,
        limits: chosen,
        createdAt,
        expiresAt,
        revokedAt: null,
        lastUsedAt: null
      }
      const secret = yield* Secret.make
      yield* store.insert(key, Secret.hash(secret))
      yield* cache.forget(key.id)
      return { ...key, key: Redacted.make(secret) }
    }, Effect.provideService(SecureRandom.SecureRandom, random)),

    rotate: Effect.fn("ApiKeys.rotate")(function*(id, grace) {
      const key = yield* find(id)
      const now = yield* DateTime.now
      if (key.revokedAt !== null) return yield* revoked(id)
      if (hasEnded(key.expiresAt, now.epochMilliseconds)) {
        return yield* new Conflict({ message: `Key ${id} has expired.` })
      }
      const secret = yield* Secret.make
      const outcome = yield* store.addSecret(id, Secret.hash(secret), {
        now,
        end: Duration.isZero(grace) ? undefined : DateTime.addDuration(now, grace),
        maxWorking: maxWorkingSecrets
      })
      if (outcome === "revoked") return yield* revoked(id)
      if (outcome === "too_many") return yield* tooManySecrets(id)
      yield* cache.forget(id)
      return { ...key, key: Redacted.make(secret) }
    }, Effect.provideService(SecureRandom.SecureRandom, random)),

    revoke: Effect.fn("ApiKeys.revoke")(function*(id) {
      const ended = yield* store.revoke(id, yield* DateTime.now)
      yield* cache.forget(id)
      return yield* ended
        ? Effect.void
        : Effect.andThen(find(id), new Conflict({ message: `Key ${id} was revoked before.` }))
    }),

    // By hand, and no generator: every request passes here.
    verify: (key) => {
      const text = Redacted.value(key)
      if (!Secret.isWellFormed(text)) return invalid
      // Not with each request: with many keys each would be a write, of what was written a moment ago.
      let notedMinute: number | undefined
      return Effect.flatMap(cache.get(Secret.hash(text)), (holder) => {
        const now = clock.currentTimeMillisUnsafe()
        if (
          holder === undefined || holder.key.revokedAt !== null ||
          hasEnded(holder.key.expiresAt, now) || hasEnded(holder.secretExpiresAt, now)
        ) return invalid
        const thisMinute = now - now % minute
        if (thisMinute !== notedMinute) uses.set(holder.key.id, thisMinute)
        notedMinute = thisMinute
        return Effect.succeed(holder.key)
      })
    }
  })
})

const revoked = (id: string) => new Conflict({ message: `Key ${id} is revoked.` })

const tooManySecrets = (id: string) =>
  new Conflict({
    message:
      `Key ${id} already has ${maxWorkingSecrets} secrets that work. Wait until a grace period ends, or rotate ` +
      "the key without one, which ends them all at once."
  })

const hasEnded = (at: DateTime.Utc | null, now: number): boolean => at !== null && at.epochMilliseconds <= now

const invalid = Effect.fail(new InvalidApiKey())
