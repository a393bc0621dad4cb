/** Tests the caches of a running service after a failover, after a restore, and while a table is locked. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { join } from "node:path"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { keysOn, temporaryDirectory, unlimitedKeyOptions } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { start } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"

/** Uses the keys on a server, as another instance of the service does. */
const withKeys = <A, E>(url: string, use: (keys: ApiKeys["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(ApiKeys, use).pipe(Effect.provide(keysOn(PgClient.layer({ url: Redacted.make(url) }))))

/** Issues a key on a server. */
const issue = (url: string) =>
  withKeys(
    url,
    (keys) => Effect.map(keys.issue(unlimitedKeyOptions), ({ id, key }) => ({ id, secret: Redacted.value(key) }))
  )

/** Commits `count` transactions, which advances the server's next transaction id. */
const advanceTransactionId = (sql: PgClient.PgClient, count: number) =>
  sql.unsafe(`DO $$ BEGIN FOR i IN 1..${count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)

/** Returns the status of a list. A 429 counts as 401, because only requests without a valid key reach a limit. */
const statusOf = (address: string, secret: string) =>
  Effect.map(Load.request(address, secret, "/v1/pets?limit=1"), ({ status }) => status === 429 ? 401 : status)

/** Sends requests with each of the keys for `milliseconds`. Returns the set of statuses for each key. */
const statusesFor = Effect.fnUntraced(function*(address: string, secrets: ReadonlyArray<string>, milliseconds: number) {
  const statuses = secrets.map(() => new Set<number>())
  for (const startedAt = performance.now(); performance.now() - startedAt < milliseconds;) {
    for (const [index, secret] of secrets.entries()) statuses[index]?.add(yield* statusOf(address, secret))
    yield* Effect.sleep("20 millis")
  }
  return statuses.map((set) => [...set])
})

/** Sends requests until a response has this status. */
const untilStatus = (address: string, secret: string, status: number) =>
  Effect.gen(function*() {
    while ((yield* statusOf(address, secret)) !== status) yield* Effect.sleep("20 millis")
  })

describe.skipIf(Postgres.missing !== undefined)("A running service", () => {
  it.live(
    "rejects the keys that a promoted standby does not have, or has revoked, within a second",
    () =>
      Effect.gen(function*() {
        const primary = yield* Postgres.run()
        const proxy = yield* Proxy.run(primary.port)
        const url = new URL(primary.url)
        url.port = `${proxy.port}`
        const { address } = yield* start({ DATABASE_URL: url.href })
        const [valid, revokedBefore, revokedAfter] = yield* Effect.all([
          issue(primary.url),
          issue(primary.url),
          issue(primary.url)
        ])
        yield* Load.request(address, valid.secret)
        const standby = yield* Postgres.run({}, primary.port)
        yield* standby.stopReceiving

        // These transactions never reach the standby. The service has polled their changes.
        const lost = yield* issue(primary.url)
        yield* primary.admin((sql) => advanceTransactionId(sql, 300))
        const secrets = [valid, revokedBefore, revokedAfter, lost].map(({ secret }) => secret)
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 1_500), [[200], [200], [200], [200]])
        const requesting = yield* Effect.forkChild(statusesFor(address, secrets, 60_000))

        yield* primary.kill
        yield* standby.promote
        // The new primary reuses the same transaction ids before the service connects to it.
        yield* withKeys(standby.url, (keys) => keys.revoke(revokedBefore.id))
        yield* standby.admin((sql) => advanceTransactionId(sql, 600))
        proxy.retarget(standby.port)
        yield* untilStatus(address, valid.secret, 200)
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 2_000), [[200], [401], [200], [401]])

        yield* withKeys(standby.url, (keys) => keys.revoke(revokedAfter.id))
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 1_000), [[200], [401], [401], [401]])
        yield* Fiber.interrupt(requesting)
      }),
    90_000
  )

  it.live(
    "rejects a key that was issued after the dump within a second after pg_restore",
    () =>
      Effect.gen(function*() {
        const postgres = yield* Postgres.run()
        const { address } = yield* start({ DATABASE_URL: postgres.url })
        const before = yield* issue(postgres.url)
        yield* Load.request(address, before.secret)
        const dump = join(yield* temporaryDirectory, "petstore.dump")
        yield* Postgres.dump(postgres.url, dump)
        const after = yield* issue(postgres.url)
        const secrets = [before.secret, after.secret]
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 1_000), [[200], [200]])
        yield* Postgres.restore(postgres.url, dump)
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 3_000), [[200], [401]])
        // Polls of the restored database report changes too.
        yield* postgres.admin((sql) => sql`UPDATE api_keys SET revoked_at = now() WHERE id = ${before.id}`)
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 500), [[401], [401]])
        assert.strictEqual((yield* Load.request(address, (yield* issue(postgres.url)).secret)).status, 201)
      }),
    60_000
  )

  it.live("logs one line when polls begin to fail, and one when they succeed again", () =>
    Effect.gen(function*() {
      const postgres = yield* Postgres.run()
      const { address, stderr } = yield* start({ DATABASE_URL: postgres.url })
      const { secret } = yield* issue(postgres.url)
      yield* untilStatus(address, secret, 200)
      yield* postgres.stop
      yield* statusesFor(address, [secret], 3_000)
      yield* postgres.start
      yield* untilStatus(address, secret, 200)
      yield* statusesFor(address, [secret], 1_000)
      assert.lengthOf(stderr().match(/polled for changes|Changes of/g) ?? [], 2)
      assert.match(stderr(), /The database cannot be polled for changes[^]*The database is polled for changes again/)
    }), 60_000)

  it.live(
    "serves cached pets and the cached first page while another session locks the table",
    () =>
      Effect.gen(function*() {
        const postgres = yield* Postgres.run()
        const { address } = yield* start({ DATABASE_URL: postgres.url })
        const { secret } = yield* issue(postgres.url)
        yield* Effect.replicateEffect(Load.request(address, secret), 5)
        const paths = ["/v1/pets/1", "/v1/pets?limit=3", "/v1/pets?limit=3&cursor=MQ"]
        const readAll = Effect.forEach(paths, (path) => Load.request(address, secret, path))
        // Fills the caches. The first list only looks up the lowest id.
        for (let index = 0; index < 5; index++) {
          yield* readAll
          yield* Effect.sleep("200 millis")
        }
        const locking = yield* Effect.forkChild(
          postgres.admin((sql) =>
            sql.withTransaction(
              Effect.andThen(sql`LOCK TABLE pets IN ACCESS EXCLUSIVE MODE`, sql`SELECT pg_sleep(4)`)
            )
          )
        )
        const isLocked = postgres.admin((sql) =>
          sql`SELECT FROM pg_locks WHERE relation = 'pets'::regclass AND mode = 'AccessExclusiveLock' AND granted`
        )
        while ((yield* isLocked).length === 0) yield* Effect.sleep("20 millis")
        const outcomes = []
        for (const startedAt = performance.now(); performance.now() - startedAt < 3_000;) {
          outcomes.push(...yield* readAll)
          yield* Effect.sleep("50 millis")
        }
        assert.lengthOf(yield* isLocked, 1)
        assert.isAbove(outcomes.length, 60)
        assert.deepStrictEqual([...new Set(outcomes.map(({ status }) => status))], [200])
        assert.isBelow(Math.max(...outcomes.map(({ took }) => took)), 1_000)
        yield* Fiber.join(locking)
      }),
    60_000
  )
})
