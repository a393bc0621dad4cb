/** Counts and bans in the database, which outlive the process. */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SqlRateLimiter from "../../src/rate-limit/SqlRateLimiter.ts"
import { databases, describeOnEach } from "../support/Databases.ts"

describeOnEach(databases, "RateLimiter", (it) => {
  /** Starts a limiter as a new process does. */
  const newProcess = Effect.map(Layer.build(Layer.fresh(SqlRateLimiter.layer)), Context.get(RateLimiter))
  const limits = { perMinute: 3, perDay: 100 }

  it.effect("restores counts and bans unchanged one second after they changed, even if the process is killed", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const killed = yield* newProcess
      yield* killed.charge("address:192.0.2.1", limits)
      yield* Effect.replicateEffect(killed.charge("key:counted", limits), 2)
      yield* Effect.replicateEffect(killed.charge("key:banned", limits), 7)
      yield* TestClock.adjust("1 second")
      const saved = sql<{ readonly caller: string }>`SELECT caller FROM rate_limits ORDER BY caller`
      const rows = yield* Effect.repeat(saved, { until: (found) => found.length > 0 })
      assert.deepStrictEqual(rows.map(({ caller }) => caller), ["key:banned", "key:counted"])
      const both = ({ peek }: RateLimiter["Service"]) =>
        Effect.all([peek("key:counted", limits), peek("key:banned", limits)])
      const restored = yield* both(yield* newProcess)
      assert.deepStrictEqual(restored, yield* both(killed))
      assert.isDefined(restored[1].bannedUntil)
    }))

  it.effect("saves on shutdown, even after an outage of the database, and a lifted ban stays lifted", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* Effect.scoped(Effect.gen(function*() {
        const limiter = yield* newProcess
        yield* Effect.replicateEffect(limiter.charge("key:lifted", limits), 7)
        yield* sql`ALTER TABLE rate_limits RENAME TO gone`
        yield* TestClock.adjust("1 second")
        yield* limiter.unban("key:lifted")
        yield* Effect.replicateEffect(limiter.charge("key:outage", limits), 3)
        assert.isFalse((yield* limiter.charge("key:outage", limits)).allowed)
        yield* sql`ALTER TABLE gone RENAME TO rate_limits`
      }))
      const limiter = yield* newProcess
      assert.isFalse((yield* limiter.peek("key:outage", limits)).allowed)
      assert.isUndefined((yield* limiter.peek("key:lifted", limits)).bannedUntil)
    }))

  it.effect("keeps the rejections and the ban of rows that an earlier version wrote", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const resetAt = 30_000
      yield* TestClock.setTime(0)
      const full = { used: 3, resetAt }
      const earlier = { minute: full, day: full, refusals: { used: 2, resetAt }, savedAt: { wall: 0, boot: "" } }
      const ban = { ban: { seconds: 60, until: resetAt } }
      yield* sql`INSERT INTO rate_limits (caller, state, ends_at)
        VALUES ('key:rejected', ${JSON.stringify(earlier)}::text::jsonb, to_timestamp(30)),
          ('key:stored', ${JSON.stringify(ban)}::text::jsonb, to_timestamp(30))`
      const limiter = yield* newProcess
      // The third rejection begins a ban.
      assert.isTrue((yield* limiter.charge("key:rejected", limits)).banBegan)
      assert.strictEqual((yield* limiter.peek("key:stored", limits)).bannedUntil, resetAt)
    }))
})
