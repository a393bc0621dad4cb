import { assert, it } from "@effect/vitest"
import { describeRejection, headers, retryAfterSeconds } from "../../src/rate-limit/LimitHeaders.ts"
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

const usedUp = (minute: number, day: number): Decision => ({
  allowed: false,
  bannedUntil: undefined,
  banBegan: false,
  decidedAt: 500,
  windows: [
    { name: "minute", limit: 60, seconds: 60, remaining: minute, resetAt: 60_400 },
    { name: "day", limit: 1_000, seconds: 86_400, remaining: day, resetAt: 70_100 }
  ]
})

it.each(
  [
    [
      "minute",
      usedUp(0, 7),
      { limit: "60", remaining: "0", reset: "61" },
      "60 requests per minute. Retry in 60 seconds."
    ],
    ["day", usedUp(7, 0), { limit: "1000", remaining: "0", reset: "71" }, "1000 requests per day. Retry in 70 seconds."]
  ] as const
)("X-RateLimit-* and the message of a 429 are those of the %s that is used up", (_, decision, shown, text) => {
  const expected = Object.fromEntries(Object.entries(shown).map(([name, value]) => [`x-ratelimit-${name}`, value]))
  const all = headers(decision, "key")
  assert.include(all, { ...expected, "ratelimit-policy": `"minute";q=60;w=60, "day";q=1000;w=86400` })
  const [{ remaining: minute }, { remaining: day }] = decision.windows
  assert.strictEqual(all.ratelimit, `"minute";r=${minute};t=60, "day";r=${day};t=70`)
  assert.strictEqual(describeRejection(decision, "key"), `The API key has used its limit of ${text}`)
})
