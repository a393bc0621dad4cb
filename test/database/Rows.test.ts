/** Tests that rows which SQL has made invalid are reported, on each database. */
import { assert } from "@effect/vitest"
import { Cause, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { AuditLog } from "../../src/api-keys/AuditLog.ts"
import { KeyUsage } from "../../src/api-keys/KeyUsage.ts"
import { describeCause } from "../../src/observability/LogReferences.ts"
import * as PersistentRateLimiter from "../../src/rate-limit/PersistentRateLimiter.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { describeOnEach, stores } from "../support/Databases.ts"

const reads = {
  keys: Effect.flatMap(ApiKeys, ({ list }) => list({ limit: 9 })),
  formerSecrets: Effect.flatMap(ApiKeys, ({ formerSecrets }) => formerSecrets("key_a")),
  audit: Effect.flatMap(AuditLog, ({ list }) => list({ limit: 9 })),
  usage: Effect.flatMap(KeyUsage, ({ read }) => read("key_a")),
  start: Effect.map(Layer.build(Layer.fresh(PersistentRateLimiter.layer)), Context.get(RateLimiter))
}

const insert = {
  audit: "INSERT INTO audit_log (at, key_id, action, before) VALUES (now(),",
  limits: "INSERT INTO rate_limits (caller, ends_at, state) VALUES ('key:a', now(),",
  usage:
    "INSERT INTO key_usage (key_id, seconds, starts_at, rejected, banned, allowed) VALUES ('key_a', 60, now(), 0, 0,"
}

/** Statements that make a row invalid, the read that finds it, and the column. */
const cases: ReadonlyArray<readonly [column: string, read: keyof typeof reads, statement: string]> = [
  ["api_keys.name", "keys", "UPDATE api_keys SET name = ''"],
  ["api_keys.expiresAt", "keys", "UPDATE api_keys SET name = 'a', expires_at = 'infinity'"],
  [
    "api_key_secrets.lastUsedAt",
    "formerSecrets",
    "INSERT INTO api_key_secrets VALUES ('', 'key_a', now() + interval '1 day', false, 'infinity')"
  ],
  ["audit_log.action", "audit", `${insert.audit} 'key_a', 'gone', null)`],
  ["audit_log.before.name", "audit", `DELETE FROM audit_log; ${insert.audit} 'key_a', 'update', '{"name": []}')`],
  ["key_usage.allowed", "usage", `${insert.usage} 9007199254740993)`],
  ["rate_limits.state.minute.resetAt", "start", `${insert.limits} '{"minute": {"used": 1}}')`],
  ["rate_limits.state", "start", `DELETE FROM rate_limits; ${insert.limits} 'null')`]
]

describeOnEach(stores.slice(1), "A read of an invalid row", (it) => {
  it.effect.each(cases)("is a defect that names %s", ([column, read, statements]) =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
        VALUES ('key_a', 'a', 'free', 1, 1, now()) ON CONFLICT DO NOTHING`
      for (const statement of statements.split("; ")) yield* sql.unsafe(statement)
      const failed = yield* Effect.flip(
        Effect.sandbox(Effect.scoped<unknown, unknown, Effect.Services<typeof reads[typeof read]>>(reads[read]))
      )
      assert.isTrue(Cause.hasDies(failed))
      assert.include(describeCause(failed), `The database has an invalid row: ${column}: `)
    }))
})
