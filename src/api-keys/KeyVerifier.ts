import { Clock, Context, Effect, Metric, Redacted } from "effect"
import { InvalidApiKey, type ServiceUnavailable } from "../api/Errors.ts"
import type { CurrentKey } from "../api/OperationMiddleware.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import * as WriteBehind from "../database/WriteBehind.ts"
import { byAttributes, counter, startAtZero } from "../observability/Metrics.ts"
import type { ApiKeyStore, SecretUse } from "./ApiKeyStore.ts"
import * as KeyCache from "./KeyCache.ts"

const minuteMs = 60_000

const rejectKey = Effect.fail(new InvalidApiKey())
const rejectMalformed = Effect.fail(new InvalidApiKey({ message: "The API key is incomplete or mistyped." }))

const reasons = ["disabled", "expired", "malformed", "revoked", "rotated", "unknown"] as const
type Rejection = typeof reasons[number]
const rejections = byAttributes(
  counter("api_key_rejections_total", "Requests with an API key that does not work, by the reason."),
  (reason: Rejection) => ({ reason })
)

/** Receives the reason of a rejection, for the access log. */
type OnReject = (reason: Rejection, keyId?: string) => void
type Verification = Effect.Effect<CurrentKey["Service"], InvalidApiKey | ServiceUnavailable>

const reject = (onReject: OnReject | undefined, reason: Rejection, keyId?: string) => {
  onReject?.(reason, keyId)
  const failure = reason === "malformed" ? rejectMalformed : rejectKey
  return Effect.andThen(Metric.update(rejections(reason), 1), failure)
}

export class KeyVerifier extends Context.Service<KeyVerifier, {
  verify(secret: Redacted.Redacted, onReject?: OnReject): Verification
  evict(keyId: string): void
}>()("petstore/KeyVerifier") {}

export const make = Effect.fnUntraced(function*({ hash: hashSecret, store }: {
  readonly store: Pick<ApiKeyStore, "findByHashes" | "recordUses">
  readonly hash: (secret: string) => string
}) {
  yield* startAtZero(reasons.map((reason) => rejections(reason)))
  const clock = yield* Clock.Clock
  const cache = yield* KeyCache.make(store)
  const pendingUses = yield* WriteBehind.make<string, SecretUse>({
    table: "api_keys",
    interval: "10 seconds",
    write: store.recordUses
  })

  const allow = (entry: KeyCache.Entry, onReject?: OnReject): Verification => {
    const now = clock.currentTimeMillisUnsafe()
    if (entry.endsAt <= now) return reject(onReject, entry.endedBy ?? "expired", entry.key.id)
    // The last use is stored with minute resolution, so record it only once a minute.
    const minute = now - now % minuteMs
    if (entry.recordedMinute !== minute) {
      entry.recordedMinute = minute
      pendingUses.set(entry.hash, { keyId: entry.key.id, at: minute })
    }
    return Effect.succeed(entry.key)
  }

  return KeyVerifier.of({
    // Hot path: avoids `Effect.gen`, and skips the checksum of cached secrets.
    verify: (secret, onReject) =>
      Effect.suspend(() => {
        const text = Redacted.value(secret)
        const hash = hashSecret(text)
        const cached = cache.peek(hash)
        if (cached !== undefined) return allow(cached, onReject)
        if (!isWellFormed(text)) return reject(onReject, "malformed")
        return Effect.flatMap(cache.get(hash), (entry) => entry ? allow(entry, onReject) : reject(onReject, "unknown"))
      }),
    evict: cache.evict
  })
})
