import { assert } from "@effect/vitest"
import { Context, DateTime, Duration, Effect, Exit, Layer, Option, Predicate, Redacted, Stream, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import type { KeySelection } from "../../src/api-keys/ApiKeyStore.ts"
import { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import type { ApiKey, IssuedKey, KeyChange, KeyFilter, KeyPosition, NewKey } from "../../src/api/KeySchemas.ts"
import { planLimits } from "../../src/api/Plans.ts"
import { describeOnEach, random, sqlApiKeys, stores } from "../support/Databases.ts"
import { untilTrue } from "../support/Process.ts"

const issue = (options: Partial<NewKey> = {}) =>
  Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name: "test", plan: "free", ...options }))

/** Returns whether the service allows `key`. A defect stays a defect. */
const isAllowed = (key: Redacted.Redacted) =>
  Effect.flatMap(KeyVerifier, ({ verify }) => Effect.as(verify(key), true)).pipe(
    Effect.catchTag("KeyRejected", () => Effect.succeed(false))
  )

const assertAllowed = (isExpected: boolean, ...keys: ReadonlyArray<Redacted.Redacted>) =>
  Effect.forEach(keys, (key) => Effect.map(isAllowed(key), (allowed) => assert.strictEqual(allowed, isExpected)))

const assertFails = <E extends { readonly code: string }, R>(operation: Effect.Effect<unknown, E, R>, code: string) =>
  Effect.map(Effect.flip(operation), (error) => assert.strictEqual(error.code, code))

const isIssued = (result: unknown): result is IssuedKey =>
  Predicate.hasProperty(result, "key") && Redacted.isRedacted(result.key)

type Step = readonly [step: Effect.Effect<unknown, unknown, ApiKeys>, working: string]

/** Lives of a key: steps, and the secrets that work after each of them, `a`, `b`, … in the order of their issue. */
const lives: ReadonlyArray<
  readonly [title: string, (keys: ApiKeys["Service"], id: string, now: DateTime.Utc) => ReadonlyArray<Step>]
> = [
  ["allows a key until exactly its expiry, and again once the expiry is removed", ({ rotate, update }, id, now) => {
    const expiresAt = DateTime.add(now, { seconds: 90 })
    return [
      [update(id, { expiresAt }), "a"],
      [TestClock.adjust("89999 millis"), "a"],
      [TestClock.adjust("1 millis"), ""],
      [assertFails(rotate(id, Duration.zero), "conflict"), ""],
      [assertFails(issue({ expiresAt }), "invalid_request"), ""],
      [update(id, { name: "ended", expiresAt }), ""],
      [update(id, { expiresAt: null }), "a"]
    ]
  }],
  ["rejects all secrets of a disabled key at once, and allows them once it is enabled", ({ rotate, update }, id) => [
    [rotate(id, Duration.hours(1)), "ab"],
    [update(id, { enabled: false }), ""],
    [TestClock.adjust("1 minute"), ""],
    [update(id, { enabled: true }), "ab"]
  ]],
  ["rejects an old secret after its grace period or its early end, and at once after a revocation", (keys, id) => {
    const { endFormerSecrets, revoke, rotate } = keys
    const formerSecrets = (count: number) =>
      Effect.map(keys.formerSecrets(id), (former) => assert.lengthOf(former, count))
    return [
      [rotate(id, Duration.minutes(5)), "ab"],
      [TestClock.adjust("4 minutes"), "ab"],
      [rotate(id, Duration.zero), "c"],
      [rotate(id, Duration.minutes(1)), "cd"],
      [formerSecrets(1), "cd"],
      [endFormerSecrets(id), "d"],
      [formerSecrets(0), "d"],
      [rotate(id, Duration.minutes(1)), "de"],
      [TestClock.adjust("1 minute"), "e"],
      // A rotation with a longer grace period neither revives nor extends the secrets of an earlier one.
      [rotate(id, Duration.minutes(2)), "ef"],
      [rotate(id, Duration.hours(1)), "efg"],
      [TestClock.adjust("119999 millis"), "efg"],
      [rotate(id, Duration.hours(2)), "efgh"],
      [TestClock.adjust("1 millis"), "fgh"],
      [TestClock.adjust("58 minutes"), "gh"],
      [revoke(id), ""],
      [assertFails(revoke(id), "conflict"), ""],
      [assertFails(rotate(id, Duration.zero), "conflict"), ""],
      [assertFails(revoke("key_none"), "not_found"), ""],
      [assertFails(rotate("key_none", Duration.zero), "not_found"), ""]
    ]
  }]
]

/** Returns the keys that meet a filter, oldest first, page by page. */
const walk = (limit: number, filter: Omit<KeySelection, "limit" | "after"> = {}) =>
  Stream.runCollect(Stream.paginate(undefined, (after?: KeyPosition) =>
    Effect.gen(function*() {
      const { keys, next } = yield* (yield* ApiKeys).list({ ...filter, limit, after })
      assert.isAtMost(keys.length, limit)
      return [keys, Option.fromUndefinedOr(next)] as const
    })))

describeOnEach(stores, "ApiKeys", (it, store) => {
  it.effect("lists the issued keys without secrets, oldest first, each on exactly one page, with any limit", () =>
    Effect.gen(function*() {
      const apiKeys = yield* ApiKeys
      assert.deepStrictEqual(yield* apiKeys.list({ limit: 100 }), { keys: [] })
      const issued = yield* Effect.replicateEffect(Effect.map(issue(), Struct.omit(["key"])), 7)
      yield* TestClock.adjust("1 millis")
      const last = Struct.omit(yield* issue({ name: "last" }), ["key"])
      // Keys with the same creation time are in the order of their ids.
      const keys = [...issued.toSorted((a, b) => a.id < b.id ? -1 : 1), last]
      for (const limit of [1, 2, 5, 8, 100]) assert.deepStrictEqual(yield* walk(limit), keys)
      assert.deepStrictEqual(yield* apiKeys.find(last.id), last)
      yield* assertFails(apiKeys.find("key_none"), "not_found")
    }))

  it.effect("lists only the keys that meet each condition of a filter, page by page", () =>
    Effect.gen(function*() {
      const expiresAt = DateTime.add(yield* DateTime.now, { seconds: 1 })
      const active = yield* issue({ name: "Filter 100%_a", plan: "pro" })
      const expired = yield* issue({ name: "filter b", plan: "pro", expiresAt })
      const revoked = yield* issue({ name: "FILTER c", plan: "business", expiresAt })
      const disabled = yield* issue({ name: "filter d" })
      const { revoke, update } = yield* ApiKeys
      yield* revoke(revoked.id)
      for (const { id } of [disabled, expired, revoked]) yield* Effect.ignore(update(id, { enabled: false }))
      yield* TestClock.adjust("1 second")
      const [a, b, c, d] = [active.name, expired.name, revoked.name, disabled.name]
      const filters: ReadonlyArray<readonly [KeyFilter, ReadonlyArray<string>]> = [
        [{ search: "filter" }, [c, a, b, d]],
        [{ search: "fiLter 100%_" }, [a]],
        [{ search: "filter 100_" }, []],
        [{ search: "b" }, []],
        [{ search: active.id }, [a]],
        [{ search: active.id.slice(0, -1) }, []],
        [{ search: revoked.hint ?? "none" }, [c]],
        [{ search: "filter", plan: "pro" }, [a, b]],
        [{ search: "filter", state: "active" }, [a]],
        [{ search: "filter", state: "disabled" }, [d]],
        [{ search: "filter", state: "expired" }, [b]],
        [{ search: "filter", state: "revoked" }, [c]],
        [{ plan: "business", state: "revoked" }, [c]],
        [{ plan: "business", state: "active", search: "filter" }, []]
      ]
      for (const [filter, names] of filters) {
        assert.sameMembers((yield* walk(1, filter)).map(({ name }) => name), [...names], JSON.stringify(filter))
      }
    }))

  it.effect("lists with expiresBefore the keys that expire from now on, at that time at the latest, page by page", () =>
    Effect.gen(function*() {
      const now = yield* DateTime.now
      const day = (days: number) => DateTime.add(now, { days })
      const expiries = {
        expired: DateTime.add(now, { seconds: 1 }),
        a: day(29),
        b: day(30),
        later: day(31),
        never: null
      }
      const plan = "enterprise"
      const limits = planLimits.pro
      for (const [name, expiresAt] of Object.entries(expiries)) {
        yield* issue({ name, plan, limits, expiresAt })
        yield* TestClock.adjust("1 millis")
      }
      yield* TestClock.adjust("1 second")
      const listed = Effect.fnUntraced(function*(filter: KeyFilter) {
        const found = yield* Effect.forEach([1, 100], (limit) => walk(limit, { plan, ...filter }))
        const [names, inOnePage] = found.map((keys) => keys.map(({ name }) => name))
        assert.deepStrictEqual(names, inOnePage)
        return names
      })
      const expiresBefore = day(30)
      assert.deepStrictEqual(yield* listed({ expiresBefore }), ["a", "b"])
      assert.deepStrictEqual(yield* listed({ expiresBefore: DateTime.add(expiresBefore, { milliseconds: -1 }) }), ["a"])
      assert.deepStrictEqual(yield* listed({ expiresBefore, search: "B" }), ["b"])
      assert.deepStrictEqual(yield* listed({ expiresBefore, state: "disabled" }), [])
      assert.deepStrictEqual(yield* listed({ expiresBefore: expiries.expired }), [])
    }))

  it.effect("lists keys that match a search by name in any order of the list, on exactly one page each", () =>
    Effect.gen(function*() {
      const names = ["Named b", "named A", "named", "NAMED ä", "named b"]
      yield* Effect.forEach(names, (name) => issue({ name }))
      const lower = (name: string) => name.toLowerCase()
      for (const order of ["oldest", "newest"] as const) {
        for (const limit of [1, 2, 100]) {
          const found = (yield* walk(limit, { search: "nAmed", order })).map(({ name }) => lower(name))
          assert.deepStrictEqual(found, names.map(lower).toSorted(), order)
        }
      }
    }))

  it.effect("finds the key of a current or former secret by the SHA-256 of the secret, and says whether it works", () =>
    Effect.gen(function*() {
      const { list, revoke, rotate, update } = yield* ApiKeys
      const first = yield* issue({ name: "found" })
      const { id } = first
      const find = ({ key }: IssuedKey) => {
        const secretHash = createHash("sha256").update(Redacted.value(key)).digest("hex")
        return Effect.map(list({ secretHash, limit: 1 }), ({ keys }) => keys.map((each) => [each.id, each.secret]))
      }
      const now = yield* DateTime.now
      const current = (works: boolean) => [[id, { works, endsAt: null }]]
      const former = (works: boolean, endsAt: DateTime.Utc) => [[id, { works, endsAt }]]
      assert.deepStrictEqual(yield* find(first), current(true))
      const second = yield* rotate(id, Duration.minutes(1))
      const endsAt = DateTime.add(now, { minutes: 1 })
      assert.deepStrictEqual([yield* find(first), yield* find(second)], [former(true, endsAt), current(true)])
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* find(first), former(false, endsAt))
      const third = yield* rotate(id, Duration.zero)
      assert.deepStrictEqual([yield* find(second), yield* find(third)], [former(false, endsAt), current(true)])
      yield* update(id, { enabled: false })
      assert.deepStrictEqual(yield* find(third), current(false))
      yield* revoke(id)
      assert.deepStrictEqual(yield* find(third), current(false))
      assert.deepStrictEqual(yield* list({ secretHash: "0".repeat(64), limit: 1 }), { keys: [] })
    }))

  it.effect("limits a key to five working secrets, and always allows a rotation without a grace period", () =>
    Effect.gen(function*() {
      const apiKeys = yield* ApiKeys
      const first = yield* issue()
      const rotate = apiKeys.rotate(first.id, Duration.minutes(1))
      const rotations = Array.from({ length: 6 })
      const [rotated, rejections] = yield* Effect.partition(rotations, () => rotate, { concurrency: "unbounded" })
      const working = [first, ...rotated].map(({ key }) => key)
      assert.deepStrictEqual([working.length, rejections.length], [5, 2])
      // Five secrets have 160 random characters, of 62 kinds.
      assert.isAbove(new Set(working.map((key) => Redacted.value(key).slice(4, 36)).join("")).size, 40)
      assert.include(rejections[0], { code: "conflict", status: 409 })
      assert.include(rejections[0]?.message, "already has 5 secrets that work")
      // The rejected rotation did not shorten or extend a grace period.
      yield* TestClock.adjust("59 seconds")
      yield* assertAllowed(true, ...working)
      const last = yield* apiKeys.rotate(first.id, Duration.zero)
      yield* assertAllowed(false, ...working)
      yield* assertAllowed(true, last.key)
    }))

  it.effect("changes only the named fields of a key, effective from the next request", () =>
    Effect.gen(function*() {
      const apiKeys = yield* ApiKeys
      const { verify } = yield* KeyVerifier
      const { key: secret, ...key } = yield* issue({ name: "before" })
      assert.match(Redacted.value(secret), /^psk_[0-9A-Za-z]{38}$/)
      assert.strictEqual(key.hint, Redacted.value(secret).slice(-4))
      yield* verify(secret)
      yield* assertFails(issue({ plan: "enterprise" }), "invalid_request")
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
        assert.deepInclude(yield* verify(secret), { plan: expected.plan, limits: expected.limits })
      }
    }))

  it.effect("loses no field in concurrent changes, and exactly one of the changes to one version succeeds", () =>
    Effect.gen(function*() {
      const apiKeys = yield* ApiKeys
      const { id } = yield* issue()
      const expiresAt = DateTime.add(yield* DateTime.now, { days: 1 })
      const changes = [{ name: "new" }, { plan: "pro" }, { expiresAt }] as const
      yield* Effect.forEach(changes, (change) => apiKeys.update(id, change), { concurrency: "unbounded" })
      assert.deepInclude(yield* apiKeys.find(id), { name: "new", plan: "pro", expiresAt, version: 4 })
      const change = (name: string) => Effect.isSuccess(apiKeys.update(id, { name }, [`"4"`]))
      const outcomes = yield* Effect.forEach(["a", "b", "c", "d"], change, { concurrency: "unbounded" })
      assert.lengthOf(outcomes.filter((isChanged) => isChanged), 1)
      assert.strictEqual((yield* apiKeys.find(id)).version, 5)
    }))

  it.effect.each(lives)("%s", ([, stepsOf]) =>
    Effect.gen(function*() {
      const { key, id } = yield* issue()
      const secrets = [["a", key] as readonly [string, Redacted.Redacted]]
      for (const [index, [step, working]] of stepsOf(yield* ApiKeys, id, yield* DateTime.now).entries()) {
        const result = yield* step
        if (isIssued(result)) secrets.push([String.fromCharCode(97 + secrets.length), result.key])
        const allowed = yield* Effect.filter(secrets, ([, secret]) => isAllowed(secret))
        assert.strictEqual(allowed.map(([name]) => name).join(""), working, `step ${index}`)
      }
    }))

  it.effect("records the last use of a key and of each secret to the minute, never before the key was created", () =>
    Effect.gen(function*() {
      const { find, formerSecrets, rotate } = yield* ApiKeys
      const createdAt = 3_675_000
      yield* TestClock.setTime(createdAt)
      const first = yield* issue()
      const second = yield* rotate(first.id, Duration.hours(1))
      const lastUses = Effect.gen(function*() {
        const instants = [yield* find(first.id), ...yield* formerSecrets(first.id)]
        return instants.map(({ lastUsedAt }) => lastUsedAt?.epochMilliseconds)
      })
      assert.deepStrictEqual(yield* lastUses, [undefined, undefined])
      const expected: Array<number | undefined> = [undefined, undefined]
      for (const used of [first, second, first]) {
        const now = (yield* DateTime.now).epochMilliseconds
        const minute = Math.max(now - now % 60_000, createdAt)
        expected[0] = minute
        if (used === first) expected[1] = minute
        yield* assertAllowed(true, used.key, used.key)
        const isRecorded = Effect.map(lastUses, (uses) => uses.join() === expected.join())
        yield* untilTrue(Effect.andThen(TestClock.adjust("5 seconds"), isRecorded), "the use is recorded")
        yield* TestClock.adjust("1 minute")
      }
    }))

  it.effect("records the latest use of a key whose secrets are used in different minutes of one write", () =>
    Effect.gen(function*() {
      const { find, rotate } = yield* ApiKeys
      yield* TestClock.setTime(7_200_000)
      // The hashes of the secrets decide the order of the rows, so two keys could both be right by chance.
      const keys = yield* Effect.replicateEffect(issue(), 8)
      const rotated = yield* Effect.forEach(keys, ({ id }) => rotate(id, Duration.hours(1)))
      yield* TestClock.setTime(7_319_500)
      yield* assertAllowed(true, ...keys.map(({ key }) => key))
      yield* TestClock.adjust("1 second")
      yield* assertAllowed(true, ...rotated.map(({ key }) => key))
      const lastUses = Effect.forEach(
        keys,
        ({ id }) => Effect.map(find(id), ({ lastUsedAt }) => lastUsedAt?.epochMilliseconds)
      )
      const areRecorded = Effect.map(lastUses, (uses) => !uses.includes(undefined))
      yield* untilTrue(Effect.andThen(TestClock.adjust("5 seconds"), areRecorded), "the uses are recorded")
      assert.deepStrictEqual(yield* lastUses, keys.map(() => 7_320_000))
    }))

  it.effect("keeps the last four characters of each former secret, in the order in which they stop working", () =>
    Effect.gen(function*() {
      const { formerSecrets, rotate } = yield* ApiKeys
      const first = yield* issue()
      const second = yield* rotate(first.id, Duration.hours(1))
      const third = yield* rotate(first.id, Duration.hours(2))
      const former = yield* formerSecrets(first.id)
      const hints = [first, second, third].map(({ key }) => Redacted.value(key).slice(-4))
      assert.deepStrictEqual([...former, third].map(({ hint = null }) => hint), hints)
    }))

  if (store === "memory") return

  it.effect("shows no hint of a secret that a process of schema version 5 rotated, and that of the next one", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { formerSecrets, rotate } = yield* ApiKeys
      const { id } = yield* issue()
      // The statements of that version.
      const endsAt = DateTime.toDateUtc(DateTime.add(yield* DateTime.now, { minutes: 1 }))
      yield* sql`UPDATE api_key_secrets SET expires_at = ${endsAt} WHERE key_id = ${id}`
      yield* sql`INSERT INTO api_key_secrets (hash, key_id) VALUES (sha256(${id}::bytea), ${id})`
      yield* sql`UPDATE api_keys SET hint = 'next' WHERE id = ${id}`
      yield* rotate(id, Duration.hours(1))
      assert.deepStrictEqual((yield* formerSecrets(id)).map(({ hint }) => hint), [undefined, "next"])
    }))

  it.effect("looks at 10,000 keys at most for a page of a filter, and goes on from there", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
        SELECT 'key_' || n, 'many', 'business', 1, 1, to_timestamp(-1) FROM generate_series(1, 10000) AS n`
      const { list } = yield* ApiKeys
      const filter = { plan: "enterprise", limit: 10 } as const
      const { keys, next } = yield* list(filter)
      assert.isEmpty(keys)
      assert.deepStrictEqual(next, { createdAt: -1_000, id: "key_9999" })
      assert.isUndefined((yield* list({ ...filter, after: next })).next)
      // In the order of names, at 1,000 at most.
      const ids = Array.from({ length: 10_000 }, (_, index) => `key_${index + 1}`).toSorted()
      const named = yield* list({ ...filter, search: "mAny" })
      assert.deepStrictEqual(named.next, { createdAt: -1_000, id: ids[999] ?? "", name: "many" })
      yield* sql`DELETE FROM api_keys WHERE name = 'many'`
    }))

  it.effect("stores no secret in clear text", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { id, key } = yield* issue()
      const [row] = yield* sql<{ readonly text: string }>`
        SELECT string_agg(k::text, '') || (SELECT string_agg(s::text, '') FROM api_key_secrets s) AS text
        FROM api_keys k`
      assert.include(row?.text, id)
      const plain = Redacted.value(key)
      for (const text of [plain.slice(4), Buffer.from(plain).toString("hex")]) assert.notInclude(row?.text, text)
    }))

  it.effect("verifies a key in the caller's transaction, and caches nothing of it", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { id, key } = yield* issue()
      yield* assertAllowed(true, key)
      const rolledBack = sql.withTransaction(Effect.gen(function*() {
        yield* sql`UPDATE api_keys SET enabled = false WHERE id = ${id}`
        yield* assertAllowed(false, key)
        return yield* Effect.fail("rolled back")
      }))
      assert.strictEqual(yield* Effect.flip(rolledBack), "rolled back")
      yield* assertAllowed(true, key)
      const { key: unread } = yield* issue()
      yield* sql.withTransaction(assertAllowed(true, unread))
    }))

  it.effect("follows within a second a change by another process or in SQL, and allows no key in an outage", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { verify } = yield* KeyVerifier
      const otherProcess = sqlApiKeys.pipe(Layer.provide(random), Layer.fresh)
      const { revoke, rotate, update } = Context.get(yield* Layer.build(otherProcess), ApiKeys)
      const [changed, kept] = [yield* issue(), yield* issue()]
      const changes: ReadonlyArray<(id: string) => Effect.Effect<unknown, unknown>> = [
        revoke,
        (id) => rotate(id, Duration.zero),
        (id) => update(id, { enabled: false }),
        (id) => sql`UPDATE api_keys SET revoked_at = now() WHERE id = ${id}`,
        (id) => sql`DELETE FROM api_keys WHERE id = ${id}`,
        (id) => sql`DELETE FROM api_key_secrets WHERE key_id = ${id}`
      ]
      const rejected = yield* Effect.forEach(changes, () => issue())
      const secrets = rejected.map(({ key }) => key)
      yield* assertAllowed(true, changed.key, kept.key, ...secrets)
      yield* update(changed.id, { plan: "pro" })
      for (const [index, change] of changes.entries()) yield* change(rejected[index]?.id ?? "")
      yield* TestClock.adjust("1 second")
      assert.deepInclude(yield* verify(changed.key), { plan: "pro", limits: planLimits.pro })
      yield* assertAllowed(false, ...secrets)
      yield* assertAllowed(true, kept.key)
      yield* sql`ALTER TABLE api_keys RENAME TO gone`
      yield* TestClock.adjust("1 second")
      assert.isTrue(Exit.isFailure(yield* Effect.exit(isAllowed(kept.key))))
      yield* sql`ALTER TABLE gone RENAME TO api_keys`
      yield* assertAllowed(true, kept.key)
      yield* sql`TRUNCATE api_keys CASCADE`
      yield* TestClock.adjust("1 second")
      yield* assertAllowed(false, kept.key)
    }))
})
