/** Counts and bans in the database, which outlive the process. */
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SqlRateLimiter from "../../src/rate-limit/SqlRateLimiter.ts"
import { databases } from "../support/Harness.ts"

/** Waits, in real time, until the database has the state of `caller`. */
const untilSaved = (caller: Caller) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    while ((yield* sql`SELECT FROM rate_limits WHERE caller = ${caller}`).length === 0) {
      yield* TestClock.withLive(Effect.sleep("10 millis"))
    }
  })

for (const database of databases) {
  describe.skipIf(database.skip)(`RateLimiter on ${database.name}`, () => {
    layer(database.layer)((it) => {
      /** Starts a limiter as a new process does. */
      const newProcess = Effect.map(Layer.build(Layer.fresh(SqlRateLimiter.layer)), Context.get(RateLimiter))
      const limits = { perMinute: 3, perDay: 100 }

      it.effect("restores counts and bans unchanged one second after they changed, also if the process is killed", () =>
        Effect.gen(function*() {
          const killed = yield* newProcess
          for (let i = 0; i < 2; i++) yield* killed.charge("key:counted", limits)
          for (let i = 0; i < 7; i++) yield* killed.charge("key:banned", limits)
          yield* TestClock.adjust("1 second")
          yield* untilSaved("key:banned")
          const both = ({ peek }: RateLimiter["Service"]) =>
            Effect.all([peek("key:counted", limits), peek("key:banned", limits)])
          const restored = yield* both(yield* newProcess)
          assert.deepStrictEqual(restored, yield* both(killed))
          assert.isDefined(restored[1].bannedUntil)
        }))

      it.effect("saves at its end, also after an outage of the database, and a ban stays lifted", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* Effect.scoped(Effect.gen(function*() {
            const limiter = yield* newProcess
            for (let i = 0; i < 7; i++) yield* limiter.charge("key:lifted", limits)
            yield* sql`ALTER TABLE rate_limits RENAME TO gone`
            yield* TestClock.adjust("1 second")
            yield* limiter.unban("key:lifted")
            for (let i = 0; i < 3; i++) assert.strictEqual((yield* limiter.charge("key:outage", limits)).allowed, true)
            assert.isFalse((yield* limiter.charge("key:outage", limits)).allowed)
            yield* sql`ALTER TABLE gone RENAME TO rate_limits`
          }))
          const limiter = yield* newProcess
          assert.strictEqual((yield* limiter.peek("key:outage", limits)).windows[0].remaining, 0)
          assert.isUndefined((yield* limiter.peek("key:lifted", limits)).bannedUntil)
        }))

      it.effect("continues the counts, rejections and bans in rows of earlier versions, and of a clock that was ahead", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const now = yield* Clock.currentTimeMillis
          const resetAt = now + 30_000
          const used = { minute: { used: 3, resetAt }, day: { used: 3, resetAt }, savedAt: { wall: now, boot: "" } }
          const rows = {
            "key:rejected": { ...used, refusals: { used: 2, resetAt } },
            "key:banned": { ...used, ban: { seconds: 60, until: resetAt } },
            "key:ahead": { minute: { used: 3, resetAt: now + 3_600_000 } }
          }
          for (const [caller, state] of Object.entries(rows)) {
            yield* sql`INSERT INTO rate_limits (caller, state, ends_at)
              VALUES (${caller}, ${JSON.stringify(state)}::text::jsonb, to_timestamp(${resetAt / 1000}::float8))
              ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at`
          }
          const limiter = yield* newProcess
          // The third rejection begins a ban.
          assert.isTrue((yield* limiter.charge("key:rejected", limits)).banBegan)
          assert.strictEqual((yield* limiter.peek("key:banned", limits)).bannedUntil, resetAt)
          const ahead = yield* limiter.peek("key:ahead", limits)
          assert.deepStrictEqual([ahead.allowed, ahead.windows[0].resetAt], [false, now + 60_000])
        }))
    })
  })
}
