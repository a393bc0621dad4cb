/** Verifies the API key of each request (SPEC §5): its form, its hash, its lease, and the record of its last use. */
import { Clock, Context, Effect, Redacted } from "effect"
import { InvalidApiKey, type ServiceUnavailable } from "../api/Errors.ts"
import type { CurrentKey } from "../api/OperationMiddleware.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import type { ApiKeyStore, SecretUse } from "./ApiKeyStore.ts"
import * as KeyCache from "./KeyCache.ts"

const minuteMs = 60_000

/** Fails with `InvalidApiKey` (401, SPEC §5.3). All requests share this instance. */
const rejectKey = Effect.fail(new InvalidApiKey())

export class KeyVerifier extends Context.Service<KeyVerifier, {
  /**
   * Returns the API key of `secret`, and records its use once a minute. Fails with `InvalidApiKey` if the key is
   * unknown, expired, disabled or revoked. A change takes effect within one second, and at once in its own process.
   */
  verify(secret: Redacted.Redacted): Effect.Effect<CurrentKey["Service"], InvalidApiKey | ServiceUnavailable>

  /** Evicts the secrets of a key. `ApiKeys` calls it for each key that it changes. */
  evict(keyId: string): void
}>()("petstore/KeyVerifier") {}

/** Makes the service. The store has the secrets of keys only as the results of `hash`. */
export const make = Effect.fnUntraced(function*({ hash: hashSecret, store }: {
  readonly store: Pick<ApiKeyStore, "findByHashes" | "recordUses">
  readonly hash: (secret: string) => string
}) {
  const clock = yield* Clock.Clock
  const cache = yield* KeyCache.make(store)
  const pendingUses = yield* WriteBehind.make<string, SecretUse>({
    table: "api_keys",
    interval: "10 seconds",
    write: store.recordUses,
    warning: "Uses of keys cannot be recorded"
  })

  const allow = (entry: KeyCache.Entry): Effect.Effect<CurrentKey["Service"], InvalidApiKey> => {
    const now = clock.currentTimeMillisUnsafe()
    if (entry.endsAt <= now) return rejectKey
    // Last use has minute resolution, so it is written once a minute.
    const minute = now - now % minuteMs
    if (entry.recordedMinute !== minute) {
      entry.recordedMinute = minute
      pendingUses.set(entry.hash, { keyId: entry.key.id, at: minute })
    }
    return Effect.succeed(entry.key)
  }

  return KeyVerifier.of({
    // Hot path: it has no generator, and does not check the form of a cached secret.
    verify: (secret) =>
      Effect.suspend(() => {
        const text = Redacted.value(secret)
        const hash = hashSecret(text)
        const cached = cache.peek(hash)
        if (cached !== undefined) return allow(cached)
        if (!isWellFormed(text)) return rejectKey
        return Effect.flatMap(cache.get(hash), (entry) => entry === undefined ? rejectKey : allow(entry))
      }),
    evict: cache.evict
  })
})
