/** API keys (SPEC §5): issuing, rotation, revocation, and verification of the key of a request. */
import { Clock, Context, DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import type { CurrentKey } from "../api/Auth.ts"
import { Conflict, InvalidApiKey, InvalidRequest, NotFound } from "../api/Errors.ts"
import type { ApiKey, IssuedKey, NewKey } from "../api/Keys.ts"
import { planLimits } from "../api/Plans.ts"
import { ChangePoller } from "../database/ChangePoller.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import {
  type ApiKeyStore,
  type Holder,
  type KeySelection,
  type ListedKeys,
  memoryStore,
  sqlStore
} from "./ApiKeyStore.ts"
import * as KeyCache from "./KeyCache.ts"
import * as Secret from "./Secret.ts"

export class ApiKeys extends Context.Service<ApiKeys, {
  /** Issues a key. Fails if it would have expired already, or if it is an Enterprise key without limits. */
  issue(key: NewKey): Effect.Effect<IssuedKey, InvalidRequest>

  /** Lists all keys ever issued in pages, oldest first. The cost of a page does not grow with the number of keys. */
  list(selection: KeySelection): Effect.Effect<ListedKeys>

  /** Returns the key with this id. Fails if no key was issued under it. */
  find(id: string): Effect.Effect<ApiKey, NotFound>

  /**
   * Issues another secret for a key. The former secrets work for `grace`. Fails if the key is revoked or expired, or if
   * more than `maxWorkingSecrets` would work. Without `grace` only the new secret works, and the number of secrets
   * never makes it fail.
   */
  rotate(id: string, grace: Duration.Duration): Effect.Effect<IssuedKey, NotFound | Conflict>

  /** Revokes a key for good: at once in this process, within one second in others. Fails if it is revoked already. */
  revoke(id: string): Effect.Effect<void, NotFound | Conflict>

  /**
   * Returns the holder of `key`, and records the use once a minute. Fails unless the key was issued here, has not
   * expired and is not revoked. `beforeLookup` runs before a lookup in the store.
   */
  verify(
    key: Redacted.Redacted,
    beforeLookup?: Effect.Effect<void>
  ): Effect.Effect<CurrentKey["Service"], InvalidApiKey>
}>()("petstore/ApiKeys") {
  /** Keeps keys on PostgreSQL, with the tables of `migrations/`. */
  static readonly layer = Layer.effect(
    ApiKeys,
    Effect.gen(function*() {
      const store = yield* sqlStore
      return yield* make(store, yield* KeyCache.make(store, yield* ChangePoller))
    })
  ).pipe(Layer.provide(ChangePoller.layer))

  /** Keeps keys in this process's memory, for tests. */
  static readonly layerMemory = Layer.effect(
    ApiKeys,
    Effect.gen(function*() {
      const store = yield* memoryStore
      return yield* make(store, {
        peek: () => undefined,
        get: (hash) => Effect.map(store.findByHashes([hash]), (found) => found.get(hash)),
        evict: () => {}
      })
    })
  )
}

const minute = 60_000

/** The maximum of working secrets of one key: the current one and those in their grace period. */
const maxWorkingSecrets = 5

const make = Effect.fnUntraced(function*(store: ApiKeyStore, cache: KeyCache.KeyCache) {
  const random = yield* SecureRandom.SecureRandom
  const clock = yield* Clock.Clock

  /** Hashes of secrets. The HTTP server passes the same object for a secret that a connection repeats. */
  const hashes = new WeakMap<Redacted.Redacted, string>()
  const hashOf = (key: Redacted.Redacted): string => {
    let hash = hashes.get(key)
    if (hash === undefined) {
      hash = Secret.hash(Redacted.value(key))
      hashes.set(key, hash)
    }
    return hash
  }

  // The last use of each key, to the minute.
  const uses = yield* WriteBehind.make({
    interval: "10 seconds",
    write: store.recordUses,
    warning: "Uses of keys cannot be recorded"
  })

  /** The minute in which the use of each key was last recorded. */
  const recordedMinutes = new WeakMap<ApiKey, number>()

  const accept = ({ key, secretExpiresAt }: Holder): Effect.Effect<ApiKey, InvalidApiKey> => {
    const now = clock.currentTimeMillisUnsafe()
    if (key.revokedAt !== null || hasEnded(key.expiresAt, now) || hasEnded(secretExpiresAt, now)) return invalid
    // Recording each request would write the same minute again and again.
    const thisMinute = now - now % minute
    if (recordedMinutes.get(key) !== thisMinute) {
      recordedMinutes.set(key, thisMinute)
      uses.set(key.id, thisMinute)
    }
    return Effect.succeed(key)
  }

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
      cache.evict(key.id)
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
      cache.evict(id)
      return { ...key, key: Redacted.make(secret) }
    }, Effect.provideService(SecureRandom.SecureRandom, random)),

    revoke: Effect.fn("ApiKeys.revoke")(function*(id) {
      const ended = yield* store.revoke(id, yield* DateTime.now)
      cache.evict(id)
      return yield* ended
        ? Effect.void
        : Effect.andThen(find(id), new Conflict({ message: `Key ${id} was revoked before.` }))
    }),

    // It uses no generator and does not check the form of a cached key, because every request passes here.
    verify: (key, beforeLookup = Effect.void) =>
      Effect.suspend(() => {
        const hash = hashOf(key)
        const cached = cache.peek(hash)
        if (cached !== undefined) return accept(cached)
        if (!Secret.isWellFormed(Redacted.value(key))) return invalid
        return beforeLookup.pipe(
          Effect.andThen(cache.get(hash)),
          Effect.flatMap((holder) => holder === undefined ? invalid : accept(holder))
        )
      })
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
