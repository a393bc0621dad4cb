import { assert, it } from "@effect/vitest"
import {
  Context,
  DateTime,
  Deferred,
  Duration,
  Effect,
  Fiber,
  Layer,
  Logger,
  Option,
  Redacted,
  References,
  Stream
} from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { AuditLog, CurrentOperator, make, memoryStore } from "../../src/api-keys/AuditLog.ts"
import * as SqlAuditLog from "../../src/api-keys/SqlAuditLog.ts"
import type { AuditPosition, AuditQuery } from "../../src/api/Audit.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import { databases, describeOnEach, stores } from "../support/Databases.ts"
import { codeBlocks, readPage } from "../support/Documents.ts"
import { untilTrue } from "../support/Process.ts"

const asAlice = Effect.provideService(CurrentOperator, { operator: "alice", mayChange: true, address: "192.0.2.7" })

const issue = (name: string) => Effect.flatMap(ApiKeys, (apiKeys) => apiKeys.issue({ name, plan: "free" }))

/** Returns all entries that meet a filter, newest first, page by page. */
const walk = (limit: number, filter: Omit<AuditQuery, "cursor" | "limit"> = {}) =>
  Stream.runCollect(Stream.paginate(undefined, (after?: AuditPosition) =>
    Effect.gen(function*() {
      const { entries, next } = yield* (yield* AuditLog).list({ ...filter, limit, after })
      assert.isAtMost(entries.length, limit)
      return [entries, Option.fromUndefinedOr(next)] as const
    })))

describeOnEach(stores, "The audit log", (it, store) => {
  it.effect("has one entry for each action, within half a second for each ban, with changed fields and no secret", () =>
    Effect.gen(function*() {
      const start = yield* DateTime.now
      const at = (seconds: number) => DateTime.add(start, { seconds })
      const apiKeys = yield* ApiKeys
      const issued = yield* issue("first")
      const { id } = issued
      yield* TestClock.adjust("1 second")
      const update = apiKeys.update(id, { name: "second", plan: "pro", expiresAt: at(60) })
      yield* asAlice(update)
      yield* asAlice(update)
      yield* TestClock.adjust("1 second")
      const rotated = yield* asAlice(apiKeys.rotate(id, Duration.minutes(1)))
      yield* TestClock.adjust("1 second")
      yield* asAlice(apiKeys.revoke(id))
      const ban = { keyId: id, address: "2001:db8::1", at: at(3.5).epochMilliseconds }
      yield* (yield* AuditLog).recordBan({ ...ban, until: at(60).epochMilliseconds })
      yield* TestClock.adjust("500 millis")
      // Actions that fail or change nothing have no entry.
      yield* Effect.flip(apiKeys.revoke(id))
      yield* Effect.flip(apiKeys.rotate(id, Duration.zero))

      // The write of the ban takes real time, while the test clock stands still.
      yield* untilTrue(Effect.map(walk(100, { key: id }), ({ length }) => length > 4), "the ban has an entry")
      const entries = yield* walk(100, { key: id })
      for (const { keyId } of entries) assert.strictEqual(keyId, id)
      const text = JSON.stringify(entries)
      for (const { key } of [issued, rotated]) assert.notInclude(text, Redacted.value(key).slice(4, -4))
      const values = { name: "first", plan: "free", perMinute: 60, perDay: 1_000, expiresAt: null }
      const expiresAt = DateTime.formatIso(at(60))
      const newValues = { name: "second", plan: "pro", perMinute: 300, perDay: 10_000, expiresAt }
      const hints = [{ hint: issued.hint }, { hint: rotated.hint, gracePeriodSeconds: 60 }]
      const revoked = [{ revokedAt: null }, { revokedAt: DateTime.formatIso(at(3)) }]
      assert.deepStrictEqual(
        entries.map((entry) => [entry.action, entry.at, entry.operator, entry.address, entry.before, entry.after]),
        [
          ["ban", at(3.5), null, ban.address, { bannedUntil: null }, { bannedUntil: expiresAt }],
          ["revoke", at(3), "alice", "192.0.2.7", ...revoked],
          ["rotate", at(2), "alice", "192.0.2.7", ...hints],
          ["update", at(1), "alice", "192.0.2.7", values, newValues],
          ["issue", start, null, null, null, { ...values, enabled: true, revokedAt: null, hint: issued.hint }]
        ]
      )
    }))

  it.effect("has an entry for the early end of former secrets", () =>
    Effect.gen(function*() {
      const { endFormerSecrets, rotate } = yield* ApiKeys
      const { id } = yield* issue("rotated")
      yield* rotate(id, Duration.minutes(1))
      yield* TestClock.adjust("1 second")
      yield* asAlice(endFormerSecrets(id))
      const { action, after, before, operator } = (yield* walk(100, { key: id }))[0] ?? assert.fail()
      assert.deepStrictEqual([action, operator, before, after], ["end-former", "alice", {}, {}])
    }))

  it.effect("is in the log too, where the command of docs/upgrade.md finds the revoked keys", () =>
    Effect.gen(function*() {
      const block = codeBlocks(readPage("docs/upgrade.md")).find(({ code }) => code.startsWith("grep "))
      const [first = "", second = "", id = ""] = Array.from(
        block?.code.matchAll(/'([^']*)'/g) ?? [],
        ([, text]) => text
      )
      const lines: Array<string> = []
      const logger = Logger.map(Logger.formatJson, (line) => void lines.push(line))
      const apiKeys = yield* ApiKeys
      const revoked = yield* Effect.gen(function*() {
        const key = yield* issue("revoked")
        yield* asAlice(apiKeys.update(key.id, { name: "still" }))
        yield* asAlice(apiKeys.revoke(key.id))
        return key.id
      }).pipe(Effect.provide(Logger.layer([logger])))
      const found = lines.filter((line) => line.includes(first) && line.includes(second))
      assert.deepStrictEqual(found.map((line) => new RegExp(id).exec(line)?.[0]), [revoked])
      assert.strictEqual(lines.filter((line) => line.includes(first)).length, 3)
    }))

  it.effect("returns each entry that meets a filter on exactly one page, newest first", () =>
    Effect.gen(function*() {
      const apiKeys = yield* ApiKeys
      const start = yield* DateTime.now
      const { id } = yield* asAlice(issue("0"))
      for (let i = 1; i < 8; i++) {
        if (i % 3 === 0) yield* TestClock.adjust("1 millis")
        const update = apiKeys.update(id, { name: String(i) })
        yield* i % 2 === 0 ? asAlice(update) : update
      }
      yield* asAlice(apiKeys.revoke(id))
      const filters: ReadonlyArray<readonly [Parameters<typeof walk>[1], entries: string]> = [
        [{}, "-76543210"],
        [{ operator: "alice" }, "-6420"],
        [{ action: "update" }, "7654321"],
        [{ operator: "alice", action: "update" }, "642"],
        [{ operator: "bob" }, ""]
      ]
      const namesOf = (limit: number) => (filter: Parameters<typeof walk>[1]) =>
        Effect.map(walk(limit, { key: id, ...filter }), (all) => all.map(({ after }) => after?.name ?? "-").join(""))
      for (const [filter, entries] of filters) {
        for (const limit of [1, 2, 4, 9, 100]) assert.strictEqual(yield* namesOf(limit)(filter), entries)
      }
      assert.deepStrictEqual(yield* walk(3), yield* walk(100))
      const [since, until] = [DateTime.add(start, { milliseconds: 1 }), DateTime.add(start, { milliseconds: 2 })]
      const periods = [{ since }, { until }, { since, until }, { since: until }]
      assert.deepStrictEqual(yield* Effect.forEach(periods, namesOf(1)), ["-76543", "543210", "543", "-76"])
    }))

  if (store === "memory") return

  it.effect("commits together with its action: without the entry, the key does not change", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { find, revoke, rotate, update } = yield* ApiKeys
      const { key: _, ...key } = yield* issue("kept")
      const { id } = key
      yield* sql`ALTER TABLE audit_log RENAME TO gone`
      for (const action of [update(id, { name: "lost" }), rotate(id, Duration.zero), revoke(id), issue("lost")]) {
        assert.strictEqual((yield* Effect.exit<unknown, unknown, ApiKeys>(action))._tag, "Failure")
      }
      yield* sql`ALTER TABLE gone RENAME TO audit_log`
      assert.deepStrictEqual(yield* find(id), key)
      assert.lengthOf(yield* sql`SELECT FROM api_key_secrets WHERE key_id = ${id}`, 1)
      assert.lengthOf(yield* sql`SELECT FROM api_keys WHERE name = 'lost'`, 0)
    }))

  it.effect("is logged once an action commits, and never if the action is rolled back", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { append } = yield* AuditLog
      const logged: Array<unknown> = []
      const logger = Logger.make(({ fiber }) => logged.push(fiber.getRef(References.CurrentLogAnnotations)["keyId"]))
      const act = (keyId: string, end: Effect.Effect<void, string>) =>
        append("revoke", keyId, null, null).pipe(
          Effect.andThen(Effect.sync(() => assert.notInclude(logged, keyId))),
          Effect.andThen(end)
        )
      yield* sql.withTransaction(act("key_committed", Effect.void)).pipe(
        Effect.andThen(Effect.flip(sql.withTransaction(act("key_lost", Effect.fail("rolled back"))))),
        Effect.provide(Logger.layer([logger]))
      )
      assert.deepStrictEqual(logged, ["key_committed"])
    }))

  it.effect("contains no personal data after running the statements in docs/keys.md", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { find, update } = yield* ApiKeys
      const { id } = yield* asAlice(issue("Ada Lovelace"))
      yield* asAlice(update(id, { name: "Ada King", plan: "pro" }))
      const other = yield* asAlice(issue("other"))
      const personal = Effect.gen(function*() {
        const [row] = yield* sql<{ readonly text: string }>`
          SELECT (SELECT string_agg(k::text, '') FROM api_keys k) || string_agg(a::text, '') AS text
          FROM audit_log a`
        return row?.text.match(/Ada \w+|alice|192\.0\.2\.7/g) ?? []
      })
      assert.isNotEmpty(yield* personal)
      const statements = codeBlocks(readPage("docs/keys.md")).find(({ language }) => language === "sql")
      for (const statement of (statements?.code ?? "").replaceAll("key_…", id).split(";\n")) {
        if (statement.trim() !== "") yield* sql.unsafe(statement)
      }
      assert.deepStrictEqual(yield* personal, [])
      assert.deepStrictEqual((yield* walk(100, { key: id })).map(({ after }) => after?.plan), ["pro", "free"])
      assert.strictEqual((yield* find(other.id)).name, "other")
    }))
})

describeOnEach(
  databases.filter(({ name }) => name === "PostgreSQL"),
  "Unbans by several operators at once",
  (it) => {
    it.effect("have one entry: the second waits for the key that the first has locked, and sees its entry", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const layer = Layer.fresh(SqlAuditLog.layer(Duration.days(400)))
        const { appendUnban, list } = Context.get(yield* Layer.build(layer), AuditLog)
        yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
          VALUES ('key_a', 'a', 'free', 1, 1, now())`
        const [locked, ended] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const first = sql.withTransaction(Effect.gen(function*() {
          yield* sql`SELECT FROM api_keys WHERE id = 'key_a' FOR NO KEY UPDATE`
          yield* Deferred.succeed(locked, undefined)
          yield* Deferred.await(ended)
          yield* appendUnban("key_a", 60_000)
        }))
        const fibers = [yield* Effect.forkChild(first)]
        yield* Deferred.await(locked)
        fibers.push(yield* Effect.forkChild(appendUnban("key_a", 60_000)))
        const waiting = sql`SELECT FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`
        yield* untilTrue(Effect.map(waiting, ({ length }) => length === 1), "the second unban waits")
        yield* Deferred.succeed(ended, undefined)
        yield* Fiber.joinAll(fibers)
        assert.lengthOf((yield* list({ limit: 9 })).entries, 1)
      }))
  }
)

it.effect("The banned keys are complete while bans are written to the audit log", () =>
  Effect.gen(function*() {
    const store = yield* memoryStore
    let waits = Effect.sleep("1 second")
    const append = (entries: Parameters<typeof store.append>[0]) => Effect.andThen(waits, store.append(entries))
    const audit = yield* make({ ...store, append })
    const recordBan = (at: number) => audit.recordBan({ keyId: "key_a", address: "::1", at, until: at + 60_000 })
    const bannedSince = audit.bannedSince(DateTime.makeUnsafe(0))
    yield* recordBan(1)
    yield* TestClock.adjust("600 millis")
    const banned = yield* Effect.forkChild(bannedSince)
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(yield* Fiber.join(banned), ["key_a"])

    // In an outage, each read ends in time, and each ban of a key gets its entry.
    waits = Effect.never
    yield* Effect.andThen(recordBan(2), recordBan(3))
    yield* TestClock.adjust("1 second")
    const readers = yield* Effect.replicateEffect(Effect.forkChild(Effect.exit(bannedSince)), 9)
    yield* TestClock.adjust("3 seconds")
    for (const reader of readers) yield* Fiber.join(reader)
    waits = Effect.void
    yield* TestClock.adjust("10 seconds")
    assert.deepStrictEqual((yield* audit.list({ limit: 9 })).entries.map(({ at }) => at.epochMilliseconds), [3, 2, 1])
  }).pipe(Effect.provide(BackgroundFailures.layerIgnored)))
