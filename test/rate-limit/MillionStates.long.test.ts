import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { temporaryDatabaseUrl } from "../support/Databases.ts"
import { queryOn } from "../support/Postgres.ts"
import { issue, type Running, send, start } from "../support/Process.ts"

const costOf = ({ process: { pid } }: Running) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ")
  const resident = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
  return { cpuMs: (Number(fields[11]) + Number(fields[12])) * 10, residentMb: Number(resident) / 1_024 }
}

const title = "A start beside a million keys with stored states costs at most 1.2 of an empty one, and knows the states"
it.live.skipIf(process.env.TEST_DATABASE_URL === undefined)(title, () =>
  Effect.gen(function*() {
    const [empty, full] = [yield* temporaryDatabaseUrl, yield* temporaryDatabaseUrl]
    const secret = yield* Effect.scoped(Effect.gen(function*() {
      const service = yield* start({ DATABASE_URL: full })
      yield* Effect.scoped(start({ DATABASE_URL: empty }))
      return (yield* issue(service, { name: "stored", plan: "free" })).key
    }))
    const state = JSON.stringify({ day: { used: 1_000, resetAt: Date.now() + 80_000_000 } })
    yield* queryOn(full)((sql) =>
      Effect.gen(function*() {
        yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
          SELECT 'key_' || n, 'a', 'free', 60, 1000, now() FROM generate_series(1, 1000000) AS n`
        yield* sql`INSERT INTO api_key_secrets (hash, key_id)
          SELECT sha256(n::text::bytea), 'key_' || n FROM generate_series(1, 1000000) AS n`
        yield* sql`INSERT INTO key_limits (key_id, process, seq, saved_at, ends_at, state)
          SELECT id, 1, 1, now(), now() + interval '1 day', ${state} FROM api_keys`
        yield* sql`ANALYZE`
      })
    )
    const measure = (DATABASE_URL: string) =>
      Effect.scoped(Effect.gen(function*() {
        const service = yield* start({ DATABASE_URL })
        yield* Effect.sleep("1 second")
        return costOf(service)
      }))
    const costs = yield* Effect.replicateEffect(Effect.all([measure(empty), measure(full)]), 2)
    const least = (index: 0 | 1, cost: "cpuMs" | "residentMb") => Math.min(...costs.map((pair) => pair[index][cost]))
    for (const cost of ["cpuMs", "residentMb"] as const) {
      assert.isAtMost(least(1, cost), 1.2 * least(0, cost), `${cost}: ${JSON.stringify(costs)}`)
    }
    const service = yield* start({ DATABASE_URL: full })
    assert.strictEqual((yield* send(`${service.address}/v1/pets`, secret)).status, 429)
  }))
