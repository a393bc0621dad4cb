import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeys } from "../src/ApiKeys.ts"
import { databases, random, stores } from "./Harness.ts"

const refused = (key: string) =>
  Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const error = yield* Effect.flip(apiKeys.verify(Redacted.make(key)))
    assert.strictEqual(error.code, "invalid_api_key")
  })

for (const store of stores) {
  describe.skipIf(store.skip)(`ApiKeys on ${store.name}`, () => {
    layer(store.layer)((it) => {
      it.effect("tells whether a key was ever issued", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          assert.isFalse(yield* apiKeys.exist)
          yield* apiKeys.issue({ name: "first", plan: "free" })
          assert.isTrue(yield* apiKeys.exist)
        }))

      it.effect("knows the holder of a key that it issued, with the plan's limits", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const issued = yield* apiKeys.issue({ name: "test", plan: "pro" })
          assert.match(Redacted.value(issued.key), /^psk_[0-9A-Za-z]{38}$/)
          assert.deepStrictEqual(yield* apiKeys.verify(issued.key), {
            id: issued.id,
            plan: "pro",
            limits: { perMinute: 300, perDay: 10_000 }
          })
        }))

      it.effect("refuses a key that differs in any one character", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const key = Redacted.value((yield* apiKeys.issue({ name: "test", plan: "free" })).key)
          for (let i = 0; i < key.length; i++) {
            yield* refused(key.slice(0, i) + (key[i] === "x" ? "y" : "x") + key.slice(i + 1))
          }
        }))

      it.effect("refuses what is no key, and a well-formed key that it did not issue", () =>
        Effect.gen(function*() {
          for (const key of ["", "psk_", "x".repeat(10_000), "psk_\0", "psk_" + "ü".repeat(38)]) yield* refused(key)
          const elsewhere = yield* Effect.flatMap(ApiKeys, (other) => other.issue({ name: "other", plan: "free" }))
            .pipe(
              Effect.provide(ApiKeys.layerMemory.pipe(Layer.provide(random), Layer.fresh))
            )
          yield* refused(Redacted.value(elsewhere.key))
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
          const { key } = yield* Effect.flatMap(ApiKeys, (keys) => keys.issue({ name: "secret", plan: "free" }))
          const rows = yield* sql<{ readonly text: string }>`SELECT api_keys::text AS text FROM api_keys`
          assert.lengthOf(rows, 1)
          const plain = Redacted.value(key)
          const hex = Buffer.from(plain).toString("hex")
          assert.isFalse(rows.some(({ text }) => text.includes(plain.slice(4)) || text.includes(hex)))
        }))

      it.effect("refuses a revoked and an expired key, and accepts one that expires later", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const apiKeys = yield* ApiKeys
          const { id, key } = yield* apiKeys.issue({ name: "ends", plan: "free" })
          yield* sql`UPDATE api_keys SET expires_at = to_timestamp(1) WHERE id = ${id}`
          assert.strictEqual((yield* apiKeys.verify(key)).id, id) // The test's clock stands at the epoch.
          yield* sql`UPDATE api_keys SET expires_at = to_timestamp(0) WHERE id = ${id}`
          yield* refused(Redacted.value(key))
          yield* sql`UPDATE api_keys SET expires_at = NULL, revoked_at = now() WHERE id = ${id}`
          yield* refused(Redacted.value(key))
        }))

      it.effect("gives an Enterprise key its own limits", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const apiKeys = yield* ApiKeys
          const { id, key } = yield* apiKeys.issue({ name: "big", plan: "free" })
          yield* sql`UPDATE api_keys SET plan = 'enterprise', per_minute = 5, per_day = 7 WHERE id = ${id}`
          assert.deepStrictEqual((yield* apiKeys.verify(key)).limits, { perMinute: 5, perDay: 7 })
        }))
    })
  })
}
