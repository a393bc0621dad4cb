/** Tests the lease of keys in a running process, through a failover and a restore. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { join } from "node:path"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { clientOn, keysOn, temporaryDirectory, unlimitedKeyOptions } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { start, untilTrue } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"

/** Uses the keys on a server, as another process of the service does. */
const withKeys = <A, E>(url: string, use: (keys: ApiKeys["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(ApiKeys, use).pipe(Effect.provide(keysOn(clientOn(url))))

const issue = (url: string) =>
  Effect.map(
    withKeys(url, (keys) => keys.issue(unlimitedKeyOptions)),
    ({ id, key }) => ({ id, secret: Redacted.value(key) })
  )

/** Returns the status of a list. A 429 counts as 401, because only requests without a valid key reach a limit. */
const statusOf = (address: string, secret: string) =>
  Effect.map(Load.request(address, secret, "/v1/pets?limit=1"), ({ status }) => status === 429 ? 401 : status)

describe.skipIf(Postgres.missing !== undefined)("A running process", () => {
  it.live("rejects, within a second, the keys that a dump or a promoted standby does not have, or has revoked", () =>
    Effect.gen(function*() {
      const primary = yield* Postgres.run()
      const proxy = yield* Proxy.run(primary.port)
      const { address } = yield* start({ DATABASE_URL: primary.url.replace(`${primary.port}`, `${proxy.port}`) })
      const [valid, revoked] = [yield* issue(primary.url), yield* issue(primary.url)]
      const dump = join(yield* temporaryDirectory, "petstore.dump")
      yield* Postgres.command("pg_dump", ["-Fc", "-f", dump, primary.url])
      const issuedAfterDump = yield* issue(primary.url)
      const statuses = (...keys: ReadonlyArray<typeof valid>) =>
        Effect.forEach(keys, ({ secret }) => statusOf(address, secret))
      assert.deepStrictEqual(yield* statuses(valid, revoked, issuedAfterDump), [200, 200, 200])
      // The keys stay in use, so that the process reads them again before their leases end.
      const requesting = yield* Effect.forkChild(Effect.forever(
        Effect.andThen(statuses(valid, revoked, issuedAfterDump), Effect.sleep("20 millis"))
      ))
      const restore = ["--clean", "--if-exists", "--single-transaction", "-d", primary.url, dump]
      yield* Postgres.command("pg_restore", restore)
      yield* Effect.sleep("1 second")
      assert.deepStrictEqual(yield* statuses(valid, revoked, issuedAfterDump), [200, 200, 401])

      const standby = yield* Postgres.run({}, primary.port)
      yield* standby.stopReceiving
      // This key never reaches the standby.
      const lost = yield* issue(primary.url)
      assert.deepStrictEqual(yield* statuses(lost), [200])
      yield* primary.kill
      yield* standby.promote
      yield* withKeys(standby.url, (keys) => keys.revoke(revoked.id))
      proxy.retarget(standby.port)
      yield* untilTrue(Effect.map(statusOf(address, valid.secret), (status) => status === 200))
      yield* Effect.sleep("1 second")
      assert.deepStrictEqual(yield* statuses(valid, revoked, lost), [200, 401, 401])
      yield* Fiber.interrupt(requesting)
    }))
})
