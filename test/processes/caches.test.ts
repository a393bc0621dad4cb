/** Tests the lease of keys in a running process, through a failover and a restore. */
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

/** Uses the keys on a server, as another process of the service does. */
const withKeys = <A, E>(url: string, use: (keys: ApiKeys["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(ApiKeys, use).pipe(Effect.provide(keysOn(PgClient.layer({ url: Redacted.make(url) }))))

const issue = (url: string) =>
  withKeys(
    url,
    (keys) => Effect.map(keys.issue(unlimitedKeyOptions), ({ id, key }) => ({ id, secret: Redacted.value(key) }))
  )

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

describe.skipIf(Postgres.missing !== undefined)("A running process", () => {
  it.live(
    "rejects, within a second, the keys that a dump or a promoted standby does not have, or has revoked",
    () =>
      Effect.gen(function*() {
        const primary = yield* Postgres.run()
        const proxy = yield* Proxy.run(primary.port)
        const url = new URL(primary.url)
        url.port = `${proxy.port}`
        const { address } = yield* start({ DATABASE_URL: url.href })
        const [valid, revoked] = [yield* issue(primary.url), yield* issue(primary.url)]
        const dump = join(yield* temporaryDirectory, "petstore.dump")
        yield* Postgres.dump(primary.url, dump)
        const issuedAfterDump = yield* issue(primary.url)
        const secrets = [valid, revoked, issuedAfterDump].map(({ secret }) => secret)
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 200), [[200], [200], [200]])
        const requesting = yield* Effect.forkChild(statusesFor(address, secrets, 120_000))
        yield* Postgres.restore(primary.url, dump)
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(yield* statusesFor(address, secrets, 200), [[200], [200], [401]])

        const standby = yield* Postgres.run({}, primary.port)
        yield* standby.stopReceiving
        // This key never reaches the standby.
        const lost = yield* issue(primary.url)
        assert.deepStrictEqual(yield* statusesFor(address, [lost.secret], 200), [[200]])
        yield* primary.kill
        yield* standby.promote
        yield* withKeys(standby.url, (keys) => keys.revoke(revoked.id))
        proxy.retarget(standby.port)
        while ((yield* statusOf(address, valid.secret)) !== 200) yield* Effect.sleep("20 millis")
        yield* Effect.sleep("1 second")
        assert.deepStrictEqual(
          yield* statusesFor(address, [valid, revoked, lost].map(({ secret }) => secret), 500),
          [[200], [401], [401]]
        )
        yield* Fiber.interrupt(requesting)
      })
  )
})
