import { assert, describe, layer } from "@effect/vitest"
import { DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../src/ApiKeys.ts"
import { databases, random, stores } from "./Harness.ts"

const isAccepted = (key: Redacted.Redacted) =>
  Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.verify(key)).pipe(
    Effect.as(true),
    Effect.catchTag("InvalidApiKey", ({ code }) => Effect.succeed(code !== "invalid_api_key"))
  )

const issue = (name = "test") => Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name, plan: "free" }))

for (const store of stores) {
  describe.skipIf(store.skip)(`ApiKeys on ${store.name}`, () => {
    layer(store.layer)((it) => {
      it.effect("lists what was issued, the oldest first, without secrets", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          assert.deepStrictEqual(yield* apiKeys.list({ limit: 100 }), { keys: [] })
          const { key: _, ...first } = yield* issue("first")
          yield* TestClock.adjust("1 second")
          const { key: __, ...second } = yield* issue("second")
          assert.deepStrictEqual(yield* apiKeys.list({ limit: 100 }), { keys: [first, second] })
          assert.deepStrictEqual(yield* apiKeys.find(second.id), second)
          assert.strictEqual((yield* Effect.flip(apiKeys.find("key_none"))).code, "not_found")
        }))

      it.effect("knows the holder of a key that it issued, with the plan's limits or Enterprise's own", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const pro = yield* apiKeys.issue({ name: "test", plan: "pro" })
          assert.match(Redacted.value(pro.key), /^psk_[0-9A-Za-z]{38}$/)
          const limits = { perMinute: 300, perDay: 10_000 }
          assert.include(yield* apiKeys.verify(pro.key), { id: pro.id, plan: "pro" })
          assert.deepStrictEqual((yield* apiKeys.verify(pro.key)).limits, limits)
          const own = { perMinute: 5, perDay: 7 }
          const enterprise = yield* apiKeys.issue({ name: "big", plan: "enterprise", limits: own })
          assert.deepStrictEqual((yield* apiKeys.verify(enterprise.key)).limits, own)
          const error = yield* Effect.flip(apiKeys.issue({ name: "big", plan: "enterprise" }))
          assert.strictEqual(error.code, "invalid_request")
        }))

      it.effect("refuses a key that differs in any one character", () =>
        Effect.gen(function*() {
          const key = Redacted.value((yield* issue()).key)
          for (let i = 0; i < key.length; i++) {
            const other = key.slice(0, i) + (key[i] === "x" ? "y" : "x") + key.slice(i + 1)
            assert.isFalse(yield* isAccepted(Redacted.make(other)))
          }
        }))

      it.effect("refuses what is no key, and a well-formed key that it did not issue", () =>
        Effect.gen(function*() {
          const elsewhere = yield* issue().pipe(
            Effect.provide(ApiKeys.layerMemory.pipe(Layer.provide(random), Layer.fresh))
          )
          const others = [
            "",
            "psk_",
            "x".repeat(10_000),
            "psk_\0",
            "psk_" + "ü".repeat(38),
            Redacted.value(elsewhere.key)
          ]
          for (const key of [...others, ...others]) assert.isFalse(yield* isAccepted(Redacted.make(key)))
        }))

      it.effect("accepts a key until the very instant of its expiry, and issues none that has passed", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const expiresAt = DateTime.add(yield* DateTime.now, { seconds: 90 })
          const { id, key } = yield* apiKeys.issue({ name: "ends", plan: "free", expiresAt })
          assert.isTrue(yield* isAccepted(key))
          yield* TestClock.adjust("89999 millis")
          assert.isTrue(yield* isAccepted(key))
          yield* TestClock.adjust("1 millis")
          assert.isFalse(yield* isAccepted(key))
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate(id, Duration.zero))).code, "conflict")
          const late = yield* Effect.flip(apiKeys.issue({ name: "late", plan: "free", expiresAt }))
          assert.strictEqual(late.code, "invalid_request")
        }))

      it.effect("refuses a revoked key at once, and revokes none twice", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { id, key } = yield* issue()
          assert.isTrue(yield* isAccepted(key))
          yield* apiKeys.revoke(id)
          assert.isFalse(yield* isAccepted(key))
          assert.isNotNull((yield* apiKeys.find(id)).revokedAt)
          assert.strictEqual((yield* Effect.flip(apiKeys.revoke(id))).code, "conflict")
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate(id, Duration.zero))).code, "conflict")
          assert.strictEqual((yield* Effect.flip(apiKeys.revoke("key_none"))).code, "not_found")
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate("key_none", Duration.zero))).code, "not_found")
        }))

      it.effect("rotates a key: the old secret ends with the grace period, at once without one", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const first = yield* issue()
          assert.isTrue(yield* isAccepted(first.key))
          const second = yield* apiKeys.rotate(first.id, Duration.minutes(5))
          assert.strictEqual(second.id, first.id)
          yield* TestClock.adjust("4 minutes")
          assert.isTrue((yield* isAccepted(first.key)) && (yield* isAccepted(second.key)))
          const third = yield* apiKeys.rotate(first.id, Duration.zero)
          assert.isFalse(yield* isAccepted(second.key))
          assert.isFalse(yield* isAccepted(first.key))
          assert.isTrue(yield* isAccepted(third.key))
          const fourth = yield* apiKeys.rotate(first.id, Duration.minutes(1))
          assert.isTrue(yield* isAccepted(third.key))
          yield* TestClock.adjust("1 minute")
          assert.isFalse(yield* isAccepted(third.key))
          assert.isTrue(yield* isAccepted(fourth.key))
          yield* apiKeys.revoke(first.id)
          assert.isFalse(yield* isAccepted(fourth.key))
        }))

      it.effect("records when a key was last used, to the minute, behind the request", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          yield* TestClock.setTime(3_600_000 + 75_000)
          const keys = yield* Effect.all([issue(), issue()])
          const lastUsedAt = Effect.map(
            Effect.forEach(keys, ({ id }) => apiKeys.find(id)),
            (found) => found.map((key) => key.lastUsedAt?.epochMilliseconds).join()
          )
          const use = Effect.all(keys.map(({ key }) => apiKeys.verify(key)))
          for (const minute of [3_660_000, 3_720_000]) {
            const before = yield* lastUsedAt
            yield* use
            yield* use
            assert.strictEqual(yield* lastUsedAt, before)
            yield* TestClock.adjust("11 seconds")
            while ((yield* lastUsedAt) === before) yield* Effect.yieldNow
            assert.strictEqual(yield* lastUsedAt, `${minute},${minute}`)
            yield* TestClock.adjust("49 seconds")
          }
        }))
    })
  })
}

for (const database of databases) {
  describe.skipIf(database.skip)(`ApiKeys on ${database.name}`, () => {
    layer(ApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(database.layer)))((it) => {
      it.effect("keeps no plain key", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { key } = yield* issue("secret")
          const rows = yield* sql<{ readonly text: string }>`
            SELECT k::text AS text FROM api_keys k UNION ALL SELECT s::text FROM api_key_secrets s`
          assert.lengthOf(rows, 2)
          const plain = Redacted.value(key)
          const hex = Buffer.from(plain).toString("hex")
          assert.isFalse(rows.some(({ text }) => text.includes(plain.slice(4)) || text.includes(hex)))
        }))

      it.effect("asks the database nothing for a key that it knows", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { key } = yield* issue()
          assert.isTrue(yield* isAccepted(key))
          yield* sql`ALTER TABLE api_key_secrets RENAME TO gone`
          assert.isTrue(yield* isAccepted(key))
          yield* sql`ALTER TABLE gone RENAME TO api_key_secrets`
        }))

      it.effect("refuses within a second what another process revoked or rotated", () =>
        Effect.gen(function*() {
          const other = yield* Effect.provide(ApiKeys, ApiKeys.layer.pipe(Layer.provide(random), Layer.fresh))
          const [revoked, rotated, kept] = yield* Effect.all([issue(), issue(), issue()])
          for (const { key } of [revoked, rotated, kept]) assert.isTrue(yield* isAccepted(key))
          yield* other.revoke(revoked.id)
          yield* other.rotate(rotated.id, Duration.zero)
          yield* TestClock.adjust("1 second")
          assert.isFalse(yield* isAccepted(revoked.key))
          assert.isFalse(yield* isAccepted(rotated.key))
          assert.isTrue(yield* isAccepted(kept.key))
        }))

      it.effect("accepts no key on its word of more than a second ago when the database cannot be asked", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { key } = yield* issue()
          assert.isTrue(yield* isAccepted(key))
          yield* sql`ALTER TABLE api_keys RENAME TO gone`
          yield* TestClock.adjust("1 second")
          assert.isTrue((yield* Effect.exit(isAccepted(key)))._tag === "Failure")
          yield* sql`ALTER TABLE gone RENAME TO api_keys`
          assert.isTrue(yield* isAccepted(key))
        }))
    })
  })
}
