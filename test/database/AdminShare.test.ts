import { assert, it } from "@effect/vitest"
import { Context, DateTime, Duration, Effect, Fiber, Layer, Logger, Redacted, Result } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { AuditLog } from "../../src/api-keys/AuditLog.ts"
import { KeyUsage } from "../../src/api-keys/KeyUsage.ts"
import { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import * as SqlKeyUsage from "../../src/api-keys/SqlKeyUsage.ts"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import { withChecksum } from "../../src/api/Secrets.ts"
import { savedStatesOptions } from "../../src/config/RoomOptions.ts"
import { AdminShare, makeDeadline } from "../../src/database/AdminShare.ts"
import * as Expiry from "../../src/database/Expiry.ts"
import { Readiness } from "../../src/database/Readiness.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SavedStates from "../../src/rate-limit/SavedStates.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { noDatabase, random, sqlApiKeys, sqlStores } from "../support/Databases.ts"
import { until } from "../support/Process.ts"

it.effect.each([[2, 1], [7, 1], [8, 2], [10, 2]] as const)(
  "Of %i connections, statements of the admin API use %i at once, and their deadline includes the wait for one",
  ([maxConnections, share]) =>
    Effect.gen(function*() {
      const withinDeadline = yield* makeDeadline(databaseErrors).pipe(
        Effect.provideServiceEffect(AdminShare, AdminShare.ofPool(maxConnections))
      )
      let running = 0
      const statement = Effect.gen(function*() {
        running++
        yield* Effect.sleep("2 seconds")
        running--
      })
      const calls = yield* Effect.forkChild(
        Effect.replicateEffect(Effect.result(withinDeadline(statement)), 3 * share, { concurrency: "unbounded" })
      )
      yield* TestClock.adjust("1 second")
      assert.strictEqual(running, share)
      yield* TestClock.adjust("1 minute")
      const results = yield* Fiber.join(calls)
      assert.lengthOf(results.filter(Result.isSuccess), share)
    })
)

/** The name of the call that a fiber runs. */
const Call = Context.Reference<string>("test/Call", { defaultValue: () => "" })

it.effect("The admin API, the flushes of usage and the expiry use the share; requests and /readyz do not", () => {
  const sharing = new Set<string>()
  const share = AdminShare.of((statements) =>
    Effect.flatMap(Call, (name) => {
      sharing.add(name)
      return statements
    })
  )
  return Effect.gen(function*() {
    const [apiKeys, audit, usage] = [yield* ApiKeys, yield* AuditLog, yield* KeyUsage]
    const [{ verify }, limiter, pets] = [yield* KeyVerifier, yield* RateLimiter, yield* PetRepository]
    const id = "key_a"
    const usageStore = yield* SqlKeyUsage.makeStore(Duration.days(30))
    const limits = { perMinute: 1, perDay: 1 }
    const admin: Readonly<Record<string, Effect.Effect<unknown, unknown>>> = {
      issue: apiKeys.issue({ name: "b", plan: "free" }),
      list: apiKeys.list({ limit: 1 }),
      "list a filter": apiKeys.list({ limit: 1, plan: "pro" }),
      find: apiKeys.find(id),
      update: apiKeys.update(id, { name: "c" }),
      "former secrets": apiKeys.formerSecrets(id),
      "read the audit log": audit.list({ limit: 1 }),
      "find bans": audit.bannedSince(DateTime.makeUnsafe(0)),
      unban: audit.appendUnban(id, 60_000),
      "read usage": usage.read(id),
      "rank usage": usage.top({ limit: 1 }),
      "flush usage": usageStore.add({ number: 1, counts: [] }),
      "add usage up": usageStore.addUp
    }
    const requests: typeof admin = {
      verify: verify(Redacted.make(withChecksum("0".repeat(32)))),
      charge: limiter.charge(`key:${id}`, limits),
      create: pets.create({ name: "a", categoryId: 1n }),
      "list pets": pets.list({ limit: 1 }),
      ready: yield* Readiness
    }
    for (const [name, call] of Object.entries({ ...admin, ...requests })) {
      // A call takes its permit before its first statement, which fails.
      yield* Effect.exit(Effect.provideService(call, Call, name))
    }
    const expiry = Expiry.deleteExpired({ table: "audit_log", key: ["id"], column: "at" })
    yield* Effect.provideService(expiry, Call, "expiry")
    yield* until(() => sharing.has("expiry"))
    sharing.delete("")
    assert.sameMembers([...sharing], [...Object.keys(admin), "expiry"])
  }).pipe(Effect.provide(
    Layer.mergeAll(sqlStores, sqlApiKeys, SavedStates.layer(savedStatesOptions), Readiness.layer(databaseErrors)).pipe(
      Layer.provideMerge(Layer.mergeAll(Layer.succeed(AdminShare, share), random, StateLookups.layer)),
      Layer.provideMerge(noDatabase),
      Layer.provideMerge(Logger.layer([]))
    )
  ))
})
