import { assert, it } from "@effect/vitest"
import { headers, retryAfterSeconds } from "../../src/rate-limit/LimitHeaders.ts"
import type { Decision } from "../../src/rate-limit/Policy.ts"

const banned = (leftOfDay: number): Decision => ({
  allowed: false,
  bannedUntil: 60_000,
  banBegan: false,
  decidedAt: 0,
  windows: [
    { name: "minute", limit: 3, seconds: 60, remaining: 3, resetAt: 30_000 },
    { name: "day", limit: 3, seconds: 86_400, remaining: leftOfDay, resetAt: 86_400_000 }
  ]
})

it.each([[1, 60], [0, 86_400]])(
  "Retry-After ends with the ban and with the used-up windows: %i requests left of the day",
  (leftOfDay, seconds) => {
    assert.strictEqual(retryAfterSeconds(banned(leftOfDay)), seconds)
    assert.strictEqual(headers(banned(leftOfDay), "key")["x-ratelimit-reset"], String(seconds))
  }
)
