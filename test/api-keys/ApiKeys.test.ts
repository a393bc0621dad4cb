/** Tests issuing, listing, rotation, revocation and verification of API keys, in memory and on each database. */
import { assert, describe, layer } from "@effect/vitest"
import { DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { TestClock } from "effect/testing"
import { hash } from "node:crypto"
import { ApiKeys, type ListedKeys } from "../../src/api-keys/ApiKeys.ts"

import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import type { ApiKey, KeyChange, KeyFilter, KeyPosition } from "../../src/api/Keys.ts"
import { planLimits } from "../../src/api/Plans.ts"
import { databases, random, stores } from "../support/Harness.ts"

/** Returns whether the service allows `key`: `false` if it fails with `invalid_api_key`. A defect stays a defect. */
const isAllowed = (key: Redacted.Redacted) =>
  Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.verify(key)).pipe(
    Effect.as(true),
    Effect.catchTag("InvalidApiKey", ({ code }) => Effect.succeed(code !== "invalid_api_key"))
  )

/** Returns the pages of a walk through the keys that meet a filter, oldest first. */
const walkPages = (limit: number, filter: KeyFilter = {}) =>
  Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const pages: Array<ReadonlyArray<ApiKey>> = []
    let after: KeyPosition | undefined
    do {
      const { keys, next }: ListedKeys = yield* apiKeys.list({ ...filter, limit, after })
      pages.push(keys)
      after = next
    } while (after !== undefined)
    return pages
  })

/** The API keys of another process on the same database. */
const otherProcess = Effect.provide(ApiKeys, SqlApiKeys.layer.pipe(Layer.provide(random), Layer.fresh))

const issue = (name = "test") => Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name, plan: "free" }))

for (const store of stores) {
  describe.skipIf(store.skip)(`ApiKeys on ${store.name}`, () => {
    layer(store.layer)((it) => {
      it.effect("lists the issued keys, oldest first, without secrets", () =>
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

      it.effect("lists keys with the same creation time by id, each on exactly one page, with any limit", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          yield* Effect.replicateEffect(issue(), 7)
          yield* TestClock.adjust("1 millis")
          yield* issue()
          const ids = (yield* apiKeys.list({ limit: 100 })).keys.toSorted((a, b) =>
            a.createdAt.epochMilliseconds - b.createdAt.epochMilliseconds || (a.id < b.id ? -1 : 1)
          ).map(({ id }) => id)
          assert.isAtLeast(ids.length, 8)
          for (const limit of [1, 2, 5, ids.length, 100]) {
            const pages = yield* walkPages(limit)
            assert.deepStrictEqual(pages.flat().map(({ id }) => id), ids)
            assert.lengthOf(pages, Math.ceil(ids.length / limit))
          }
        }))

      it.effect("lists only the keys that meet each condition of a filter, page by page", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const expiresAt = DateTime.add(yield* DateTime.now, { seconds: 1 })
          const active = yield* apiKeys.issue({ name: "Filter 100%_a", plan: "pro" })
          const expired = yield* apiKeys.issue({ name: "filter b", plan: "pro", expiresAt })
          const revoked = yield* apiKeys.issue({ name: "FILTER c", plan: "business", expiresAt })
          yield* apiKeys.revoke(revoked.id)
          yield* TestClock.adjust("1 second")
          const namesOf = (filter: KeyFilter) =>
            Effect.map(walkPages(1, filter), (pages) => pages.flat().map(({ name }) => name).toSorted().join())
          const [a, b, c] = [active.name, expired.name, revoked.name]
          const filters: ReadonlyArray<readonly [KeyFilter, ReadonlyArray<string>]> = [
            [{ search: "filter" }, [c, a, b]],
            [{ search: "100%_" }, [a]],
            [{ search: "100_" }, []],
            [{ search: active.id }, [a]],
            [{ search: expired.id.slice(4, 12) }, [b]],
            [{ search: revoked.hint ?? "none" }, [c]],
            [{ search: "filter", plan: "pro" }, [a, b]],
            [{ search: "filter", state: "active" }, [a]],
            [{ search: "filter", state: "expired" }, [b]],
            [{ search: "filter", state: "revoked" }, [c]],
            [{ plan: "business", state: "revoked" }, [c]],
            [{ plan: "business", state: "active", search: "filter" }, []]
          ]
          for (const [filter, names] of filters) {
            assert.strictEqual(yield* namesOf(filter), names.join(), JSON.stringify(filter))
          }
        }))

      it.effect("finds the key of a current or former secret by the hash of the secret, and whether the secret works", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          /** Returns the key that has the secret, and whether the secret works and has an end. */
          const find = (secret: Redacted.Redacted, filter: KeyFilter = {}) =>
            Effect.gen(function*() {
              const secretHash = hash("sha256", Redacted.value(secret))
              const { keys: [key], next } = yield* apiKeys.list({ ...filter, secretHash, limit: 1 })
              assert.isUndefined(next)
              return key &&
                `${key.id} ${String(key.secret?.works)} ${key.secret?.endsAt === null ? "current" : "former"}`
            })
          const [first, other] = [yield* issue(), yield* issue()]
          const { id } = first
          assert.strictEqual(yield* find(other.key), `${other.id} true current`)
          assert.strictEqual(yield* find(first.key), `${id} true current`)
          assert.isUndefined(yield* find(first.key, { plan: "pro" }))
          assert.isUndefined(yield* find(first.key, { state: "revoked" }))
          assert.isUndefined(yield* find(Redacted.make("psk_none")))

          const second = yield* apiKeys.rotate(id, Duration.minutes(1))
          assert.strictEqual(yield* find(first.key), `${id} true former`)
          yield* TestClock.adjust("1 minute")
          assert.strictEqual(yield* find(first.key), `${id} false former`)
          const third = yield* apiKeys.rotate(id, Duration.zero)
          assert.strictEqual(yield* find(first.key), `${id} false former`)
          assert.strictEqual(yield* find(second.key), `${id} false former`)
          assert.strictEqual(yield* find(third.key), `${id} true current`)
          yield* apiKeys.revoke(id)
          assert.strictEqual(yield* find(third.key), `${id} false current`)
          const { keys } = yield* apiKeys.list({ limit: 100 })
          assert.isTrue(keys.every((key) => !("secret" in key)))
        }))

      it.effect("limits a key to five working secrets, and always allows a rotation without a grace period", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const first = yield* issue()
          const rotate = (grace: Duration.Input) => apiKeys.rotate(first.id, Duration.fromInputUnsafe(grace))
          const four = yield* Effect.replicateEffect(rotate("1 minute"), 4)
          const rejection = yield* Effect.flip(rotate("1 minute"))
          assert.include(rejection, { code: "conflict", status: 409 })
          assert.include(rejection.message, "already has 5 secrets that work")
          for (const { key } of [first, ...four]) assert.isTrue(yield* isAllowed(key))
          // The rejected rotation did not shorten or extend a grace period.
          yield* TestClock.adjust("59 seconds")
          assert.isTrue(yield* isAllowed(first.key))
          const last = yield* rotate(0)
          for (const { key } of [first, ...four]) assert.isFalse(yield* isAllowed(key))
          assert.isTrue(yield* isAllowed(last.key))
        }))

      it.effect("verifies an issued key, with the limits of its plan, or its own limits on plan Enterprise", () =>
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

      it.effect("changes the named fields of a key, and no others, in effect with the next request", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { key: secret, ...key } = yield* issue("before")
          assert.strictEqual(key.hint, Redacted.value(secret).slice(-4))
          yield* apiKeys.verify(secret)
          const expiresAt = DateTime.add(yield* DateTime.now, { seconds: 90 })
          const limits = { perMinute: 7, perDay: 70 }
          const steps: ReadonlyArray<readonly [KeyChange, Partial<ApiKey>]> = [
            [{ name: "after" }, { name: "after" }],
            [{ plan: "pro" }, { plan: "pro", limits: planLimits.pro }],
            [{ plan: "enterprise", limits }, { plan: "enterprise", limits }],
            [{ plan: "enterprise", expiresAt }, { expiresAt }],
            [{ limits: planLimits.free }, { limits: planLimits.free }],
            [{ expiresAt: null, plan: "business" }, { expiresAt: null, plan: "business", limits: planLimits.business }]
          ]
          let expected: ApiKey = key
          for (const [change, fields] of steps) {
            expected = { ...expected, ...fields, version: expected.version + 1 }
            assert.deepStrictEqual(yield* apiKeys.update(key.id, change), expected)
            assert.deepStrictEqual(yield* apiKeys.find(key.id), expected)
            assert.deepInclude(yield* apiKeys.verify(secret), {
              plan: expected.plan,
              limits: expected.limits
            })
          }
          for (const change of [{}, { name: "after" }, { plan: "business" }] as const) {
            assert.deepStrictEqual(yield* apiKeys.update(key.id, change), expected)
          }
        }))

      it.effect("rejects a change that does not fit the key, and changes nothing", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { key: _, ...key } = yield* issue()
          const limits = { perMinute: 7, perDay: 70 }
          const rejected: ReadonlyArray<readonly [KeyChange, string]> = [
            [{ name: "other", limits }, "body.limits: fixed on plan free: only enterprise has its own"],
            [{ name: "other", plan: "pro", limits }, "body.limits: fixed on plan pro"],
            [{ name: "other", plan: "enterprise" }, "body.limits: required on plan enterprise"],
            [{ name: "other", expiresAt: yield* DateTime.now }, "body.expiresAt: expected an instant in the future"]
          ]
          for (const [change, message] of rejected) {
            const error = yield* Effect.flip(apiKeys.update(key.id, change))
            assert.strictEqual(error.code, "invalid_request")
            assert.include(error.message, message)
          }
          assert.deepStrictEqual(yield* apiKeys.find(key.id), key)
          assert.strictEqual((yield* Effect.flip(apiKeys.update("key_none", {}))).code, "not_found")
          yield* apiKeys.revoke(key.id)
          assert.strictEqual((yield* Effect.flip(apiKeys.update(key.id, { name: "other" }))).code, "conflict")
        }))

      it.effect("changes a key only in a version that If-Match names, and each change and rotation makes a version", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { id, version } = yield* issue()
          assert.strictEqual(version, 1)
          assert.strictEqual((yield* apiKeys.update(id, { name: "two" }, [`"1"`])).version, 2)
          for (const tags of [[`"1"`], [`W/"2"`], ["2"], [`"1"`, `"3"`]]) {
            const error = yield* Effect.flip(apiKeys.update(id, { name: "three" }, tags))
            assert.include(error, { code: "precondition_failed", status: 412 })
            assert.include(error.message, "has version 2")
          }
          assert.strictEqual((yield* apiKeys.update(id, { name: "three" }, [`"1"`, `"2"`])).version, 3)
          assert.strictEqual((yield* apiKeys.update(id, { name: "four" }, ["*"])).version, 4)
          const rotated = yield* apiKeys.rotate(id, Duration.zero)
          assert.deepInclude(rotated, { version: 5, hint: Redacted.value(rotated.key).slice(-4) })
          yield* apiKeys.revoke(id)
          assert.strictEqual((yield* apiKeys.find(id)).version, 6)
        }))

      it.effect("loses no field in concurrent changes, and one change wins among those of the same version", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { id } = yield* issue()
          const expiresAt = DateTime.add(yield* DateTime.now, { days: 1 })
          const changes = [{ name: "new" }, { plan: "pro" }, { expiresAt }] as const
          yield* Effect.forEach(changes, (change) => apiKeys.update(id, change), { concurrency: "unbounded" })
          assert.deepInclude(yield* apiKeys.find(id), { name: "new", plan: "pro", expiresAt, version: 4 })
          const outcomes = yield* Effect.forEach(
            ["a", "b", "c", "d"],
            (name) => Effect.isSuccess(apiKeys.update(id, { name }, [`"4"`])),
            { concurrency: "unbounded" }
          )
          assert.lengthOf(outcomes.filter((isChanged) => isChanged), 1)
          assert.strictEqual((yield* apiKeys.find(id)).version, 5)
        }))

      it.effect("rejects malformed keys, a key of another service, and a key that differs in one character", () =>
        Effect.gen(function*() {
          const elsewhere = yield* issue().pipe(
            Effect.provide(ApiKeys.layerMemory.pipe(Layer.provide(random), Layer.fresh))
          )
          const key = Redacted.value((yield* issue()).key)
          const malformed = ["", "psk_", "x".repeat(10_000), "psk_\0", "psk_" + "ü".repeat(38)]
          const altered = Array.from(key, (char, i) => key.slice(0, i) + (char === "x" ? "y" : "x") + key.slice(i + 1))
          const others = [...malformed, ...altered, Redacted.value(elsewhere.key)]
          for (const other of [...others, ...others]) assert.isFalse(yield* isAllowed(Redacted.make(other)))
        }))

      it.effect("allows a key until exactly its expiry, and again after a change of it; a new key must not have expired", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const expiresAt = DateTime.add(yield* DateTime.now, { seconds: 90 })
          const { id, key } = yield* apiKeys.issue({ name: "ends", plan: "free", expiresAt })
          assert.isTrue(yield* isAllowed(key))
          yield* TestClock.adjust("89999 millis")
          assert.isTrue(yield* isAllowed(key))
          yield* TestClock.adjust("1 millis")
          assert.isFalse(yield* isAllowed(key))
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate(id, Duration.zero))).code, "conflict")
          const late = yield* Effect.flip(apiKeys.issue({ name: "late", plan: "free", expiresAt }))
          assert.strictEqual(late.code, "invalid_request")
          yield* apiKeys.update(id, { name: "ended" })
          assert.isFalse(yield* isAllowed(key))
          yield* apiKeys.update(id, { expiresAt: null })
          assert.isTrue(yield* isAllowed(key))
        }))

      it.effect("rejects a revoked key at once, and a second revocation", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const { id, key } = yield* issue()
          assert.isTrue(yield* isAllowed(key))
          yield* apiKeys.revoke(id)
          assert.isFalse(yield* isAllowed(key))
          assert.isNotNull((yield* apiKeys.find(id)).revokedAt)
          assert.strictEqual((yield* Effect.flip(apiKeys.revoke(id))).code, "conflict")
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate(id, Duration.zero))).code, "conflict")
          assert.strictEqual((yield* Effect.flip(apiKeys.revoke("key_none"))).code, "not_found")
          assert.strictEqual((yield* Effect.flip(apiKeys.rotate("key_none", Duration.zero))).code, "not_found")
        }))

      it.effect("rejects an old secret after the grace period of a rotation, or at once without one", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const first = yield* issue()
          assert.isTrue(yield* isAllowed(first.key))
          const second = yield* apiKeys.rotate(first.id, Duration.minutes(5))
          assert.strictEqual(second.id, first.id)
          yield* TestClock.adjust("4 minutes")
          assert.isTrue((yield* isAllowed(first.key)) && (yield* isAllowed(second.key)))
          const third = yield* apiKeys.rotate(first.id, Duration.zero)
          assert.isFalse(yield* isAllowed(second.key))
          assert.isFalse(yield* isAllowed(first.key))
          assert.isTrue(yield* isAllowed(third.key))
          const fourth = yield* apiKeys.rotate(first.id, Duration.minutes(1))
          assert.isTrue(yield* isAllowed(third.key))
          yield* TestClock.adjust("1 minute")
          assert.isFalse(yield* isAllowed(third.key))
          assert.isTrue(yield* isAllowed(fourth.key))
          yield* apiKeys.revoke(first.id)
          assert.isFalse(yield* isAllowed(fourth.key))
        }))

      it.effect("records the last use of a key to the minute, in the background", () =>
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
    layer(SqlApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(database.layer)))((it) => {
      it.effect("stores no secret in clear text", () =>
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

      it.effect("deletes a former secret 400 days after its end, and no working one", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const apiKeys = yield* ApiKeys
          const { id } = yield* issue()
          const current = yield* apiKeys.rotate(id, Duration.zero)
          const count = Effect.map(sql`SELECT FROM api_key_secrets WHERE key_id = ${id}`, (rows) => rows.length)
          const age = (days: number) =>
            sql`UPDATE api_key_secrets SET expires_at = ${new Date(
              -days * 86_400_000
            )} WHERE key_id = ${id} AND is_ended`
          yield* age(399)
          yield* TestClock.adjust("10 minutes")
          assert.strictEqual(yield* count, 2)
          yield* age(400)
          while ((yield* count) > 1) yield* TestClock.adjust("1 minute")
          assert.isTrue(yield* isAllowed(current.key))
        }))

      it.effect("reads each page of many keys from an index", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
            SELECT 'key_many' || n, 'many ' || n, 'free', 60, 1000, to_timestamp(n / 100) FROM generate_series(1, 20000) n`
          yield* sql`ANALYZE api_keys`
          const now = DateTime.makeUnsafe(0)
          const after = { createdAtMicros: 50_000_000n, id: "key_8" }
          for (
            const selection of [{ limit: 101 }, { limit: 101, after }, { limit: 101, after, order: "newest" }] as const
          ) {
            const statement = SqlApiKeys.pageStatement(sql, selection, now)
            const [text, parameters] = statement.compile()
            const plan = JSON.stringify(yield* sql.unsafe(`EXPLAIN ${text}`, parameters))
            assert.match(plan, /Index Scan (Backward )?using api_keys_created/)
            assert.notMatch(plan, /Sort|Seq Scan/)
          }
          yield* sql`DELETE FROM api_keys WHERE id LIKE 'key_many%'`
        }))

      it.effect("limits the number of working secrets also in concurrent rotations", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const apiKeys = yield* ApiKeys
          const other = yield* otherProcess
          const { id } = yield* issue()
          const outcomes = yield* Effect.forEach(
            Array.from({ length: 12 }, (_, index) => index % 2 === 0 ? apiKeys : other),
            ({ rotate }) => Effect.isSuccess(rotate(id, Duration.hours(1))),
            { concurrency: "unbounded" }
          )
          assert.lengthOf(outcomes.filter((isRotated) => isRotated), 4)
          assert.lengthOf(yield* sql`SELECT FROM api_key_secrets WHERE key_id = ${id}`, 5)
        }))

      it.effect("follows within a second a change, a revocation and a rotation by another process", () =>
        Effect.gen(function*() {
          const apiKeys = yield* ApiKeys
          const other = yield* otherProcess
          const [changed, revoked, rotated, kept] = yield* Effect.all([issue(), issue(), issue(), issue()])
          for (const { key } of [changed, revoked, rotated, kept]) assert.isTrue(yield* isAllowed(key))
          yield* other.update(changed.id, { plan: "pro" })
          yield* other.revoke(revoked.id)
          yield* other.rotate(rotated.id, Duration.zero)
          yield* TestClock.adjust("1 second")
          assert.deepInclude(yield* apiKeys.verify(changed.key), { plan: "pro", limits: planLimits.pro })
          assert.isFalse(yield* isAllowed(revoked.key))
          assert.isFalse(yield* isAllowed(rotated.key))
          assert.isTrue(yield* isAllowed(kept.key))
        }))

      it.effect.each<readonly [string, (sql: SqlClient.SqlClient, id: string) => Statement.Statement<object>]>([
        ["UPDATE api_keys SET revoked_at", (sql, id) => sql`UPDATE api_keys SET revoked_at = now() WHERE id = ${id}`],
        ["DELETE FROM api_keys", (sql, id) => sql`DELETE FROM api_keys WHERE id = ${id}`],
        ["DELETE FROM api_key_secrets", (sql, id) => sql`DELETE FROM api_key_secrets WHERE key_id = ${id}`],
        ["TRUNCATE api_keys CASCADE", (sql) => sql`TRUNCATE api_keys CASCADE`]
      ])("rejects a cached key within a second after an operator's %s", ([, statement]) =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { id, key } = yield* issue()
          assert.isTrue(yield* isAllowed(key))
          yield* statement(sql, id)
          yield* TestClock.adjust("900 millis")
          assert.isFalse(yield* isAllowed(key))
        }))

      it.effect("does not allow a key on cache entries older than a second while the database fails", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const { key } = yield* issue()
          assert.isTrue(yield* isAllowed(key))
          yield* sql`ALTER TABLE api_keys RENAME TO gone`
          yield* TestClock.adjust("1 second")
          assert.isTrue((yield* Effect.exit(isAllowed(key)))._tag === "Failure")
          yield* sql`ALTER TABLE gone RENAME TO api_keys`
          assert.isTrue(yield* isAllowed(key))
        }))
    })
  })
}
