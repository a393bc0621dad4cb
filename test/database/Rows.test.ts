import { assert } from "@effect/vitest"
import { Cause, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { describeCause } from "../../src/observability/LogReferences.ts"
import * as PersistentRateLimiter from "../../src/rate-limit/PersistentRateLimiter.ts"
import { describeOnEach, stores } from "../support/Databases.ts"

describeOnEach(stores.slice(1), "A row that SQL has made invalid", (it) => {
  it.effect("is a defect of a read or a start, which names the column", () =>
    Effect.gen(function*() {
      const [sql, apiKeys] = [yield* SqlClient.SqlClient, yield* ApiKeys]
      yield* apiKeys.issue({ name: "a", plan: "free" })
      yield* sql`UPDATE api_keys SET name = ''`
      yield* sql`INSERT INTO rate_limits (caller, ends_at, state) VALUES ('key:a', now(), '{"minute": {"used": 1}}')`
      const list = yield* Effect.flip(Effect.sandbox(apiKeys.list({ limit: 9 })))
      const start = yield* Effect.flip(Effect.sandbox(Layer.build(Layer.fresh(PersistentRateLimiter.layer))))
      for (const [cause, column] of [[list, "api_keys.name"], [start, "rate_limits.state.minute.resetAt"]] as const) {
        assert.isTrue(Cause.hasDies<unknown>(cause))
        assert.include(describeCause(cause), `The database has an invalid row: ${column}: `)
      }
    }))
})
