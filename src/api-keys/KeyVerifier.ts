import { Clock, Context, Data, Effect, Layer, Metric, Redacted } from "effect"
import type { ServiceUnavailable } from "../api/Errors.ts"
import { isAdminToken, isWellFormed } from "../api/Secrets.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import { byAttributes, counter, startAtZero } from "../observability/MetricConstructors.ts"
import { ApiKeyStore, type SecretHolder, type SecretUse } from "./ApiKeyStore.ts"
import * as KeyCache from "./KeyCache.ts"

const minuteMs = 60_000

const reasons = ["admin_token", "disabled", "expired", "malformed", "revoked", "rotated", "unknown"] as const
type Rejection = typeof reasons[number]
const rejections = byAttributes(
  counter("api_key_rejections_total", "Requests with an API key that does not work, by the reason."),
  (reason: Rejection) => ({ reason })
)

/**
 * Why a key does not work, for operators. A response may tell only that the key is malformed or an admin token. It must
 * not tell any other reason, such as whether the key was revoked or never existed.
 */
export class KeyRejected extends Data.TaggedError("KeyRejected")<{
  readonly reason: Rejection
  readonly keyId: string | undefined
}> {}

type Verification = Effect.Effect<SecretHolder["key"], KeyRejected | ServiceUnavailable>

const reject = (reason: Rejection, keyId?: string) =>
  Effect.andThen(Metric.update(rejections(reason), 1), Effect.fail(new KeyRejected({ reason, keyId })))

/** Verifies the secret of a request. */
export class KeyVerifier extends Context.Service<KeyVerifier, {
  /** Returns the API key of the secret. Fails with `KeyRejected` if the secret does not work. */
  verify(secret: Redacted.Redacted): Verification
  /** Evicts a key from this process's cache, so that a change of the key takes effect at once. */
  evict(keyId: string): Effect.Effect<void>
}>()("api-keys/KeyVerifier") {
  /** Looks keys up in the `ApiKeyStore` of the context, and caches them for less than a second. */
  static readonly layer = Layer.effect(KeyVerifier, Effect.suspend(() => Effect.flatMap(ApiKeyStore, make)))
}

type Store = Pick<ApiKeyStore["Service"], "findByHashes" | "hash" | "isInTransaction" | "recordUses">

export const make = Effect.fnUntraced(function*(store: Store) {
  yield* startAtZero(reasons.map((reason) => rejections(reason)))
  const clock = yield* Clock.Clock
  const cache = yield* KeyCache.make(store)
  const pendingUses = yield* WriteBehind.make<string, SecretUse>({
    table: "api_keys",
    interval: "2 seconds",
    write: store.recordUses
  })

  const allow = (entry: KeyCache.Entry): Verification => {
    const now = clock.currentTimeMillisUnsafe()
    if (entry.endsAt <= now) return reject(entry.endedBy ?? "expired", entry.key.id)
    const minute = now - now % minuteMs
    if (entry.recordedMinute !== minute) pendingUses.add(entry.hash, { keyId: entry.key.id, at: minute })
    entry.recordedMinute = minute
    return Effect.succeed(entry.key)
  }

  return KeyVerifier.of({
    // Hot path: avoids `Effect.gen`, and skips the checksum of cached secrets.
    verify: (secret) =>
      Effect.withFiber((fiber) => {
        const text = Redacted.value(secret)
        const hash = store.hash(text)
        const cached = store.isInTransaction(fiber) ? undefined : cache.useCached(hash)
        if (cached !== undefined) return allow(cached)
        if (!isWellFormed(text)) return reject(isAdminToken(text) ? "admin_token" : "malformed")
        return Effect.flatMap(cache.get(hash), (entry) => entry ? allow(entry) : reject("unknown"))
      }),
    evict: cache.evict
  })
})
