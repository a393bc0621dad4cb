import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { TestClock } from "effect/testing"
import * as KeyVerifier from "../../src/api-keys/KeyVerifier.ts"
import { withChecksum } from "../../src/api/Secrets.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import { until } from "../support/Process.ts"

const key = { id: "key_a", plan: "free", limits: { perMinute: 1, perDay: 1 } } as const

it.effect("The uses of a secret in a minute are recorded together, two seconds after the first one", () =>
  Effect.gen(function*() {
    const recorded: Array<unknown> = []
    let lookups = 0
    const { verify } = yield* KeyVerifier.make({
      hash: (secret) => secret,
      isInTransaction: () => false,
      findByHashes: (hashes) =>
        Effect.sync(() => {
          lookups++
          return new Map(hashes.map((hash) => [hash, { key, endsAt: Infinity }]))
        }),
      recordUses: (uses) => Effect.sync(() => void recorded.push(...uses.values()))
    })
    yield* TestClock.setTime(70_000)
    const use = verify(Redacted.make(withChecksum("a".repeat(32))))
    const first = yield* Effect.forkChild(use)
    yield* until(() => lookups > 0)
    yield* Fiber.join(first)
    yield* use
    yield* TestClock.adjust("1999 millis")
    assert.isEmpty(recorded)
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(recorded, [{ keyId: "key_a", at: 60_000 }])
  }).pipe(Effect.provide(BackgroundFailures.layerIgnored)))
