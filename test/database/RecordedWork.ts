/** The work of the service that the recorder records: a first start, a restart, and each kind of acknowledged write. */
import { NodeFileSystem } from "@effect/platform-node"
import { ConfigProvider, Effect, Layer, Logger, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { savedStatesOptions } from "../../src/config/RoomOptions.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import { AdminToken } from "../../src/management/AdminToken.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as SavedStates from "../../src/rate-limit/SavedStates.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { databaseOfSettings, random, sqlApiKeys, sqlStores } from "../support/Databases.ts"
import type { Mark } from "./RecordedService.ts"

/** The service's own layers on a data directory, in the order of `main.ts`. */
export const serviceIn = (DATA_DIR: string) =>
  Layer.mergeAll(sqlStores, sqlApiKeys, SavedStates.layer(savedStatesOptions)).pipe(
    Layer.provideMerge(Layer.merge(databaseOfSettings, BackgroundFailures.layerIgnored)),
    Layer.provide(StateLookups.layer),
    Layer.provideMerge(AdminToken.layer),
    Layer.provideMerge(random),
    Layer.provide(NodeFileSystem.layer),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ DATA_DIR }))),
    Layer.provide(Logger.layer([]))
  )

export const petOf = (name: string) => ({ name, categoryId: 1n, status: "available" as const })
const limits = { perMinute: 3, perDay: 100 }

const work = (run: string, mark: (mark: Mark) => void) =>
  Effect.gen(function*() {
    const [sql, pets, apiKeys, limiter] = [
      yield* SqlClient.SqlClient,
      yield* PetRepository,
      yield* ApiKeys,
      yield* RateLimiter
    ]
    mark({ kind: "token", id: "", value: Redacted.value((yield* AdminToken).token) })
    mark({ kind: "started", id: run, value: "" })
    const create = Effect.fnUntraced(function*(name: string) {
      const { item: pet } = yield* pets.create(petOf(name))
      mark({ kind: "pet", id: name, value: String(pet.id) })
    })
    const createOnce = Effect.fnUntraced(function*(name: string) {
      const { item: pet } = yield* pets.create(petOf(name), { owner: "key_owner", key: name })
      mark({ kind: "replayable", id: name, value: String(pet.id) })
    })
    const round = Effect.fnUntraced(function*(round: string) {
      const prefix = `${run}-${round}`
      yield* Effect.forEach([1, 2, 3], (i) => create(`${prefix}-${i}`), { concurrency: 3 })
      yield* create(`${prefix}-4`)
      yield* createOnce(`${prefix}-once`)
      const key = yield* apiKeys.issue({ name: prefix, plan: "enterprise", limits })
      mark({ kind: "key", id: key.id, value: "" })
      const revoked = yield* apiKeys.issue({ name: prefix, plan: "free" })
      yield* apiKeys.revoke(revoked.id)
      mark({ kind: "revoked", id: revoked.id, value: "" })
      // Three allowed requests, then three that are rejected, which ban the key.
      yield* Effect.replicateEffect(limiter.charge(`key:${key.id}`, limits), 6)
      return key.id
    })
    const banned = yield* round("a")
    yield* sql`CHECKPOINT`
    const alsoBanned = yield* round("b")
    yield* sql`SELECT pg_switch_wal()::text`
    yield* create(`${run}-switched`)
    yield* Effect.sleep("1 second")
    for (const id of [banned, alsoBanned]) mark({ kind: "limits", id, value: "" })
    yield* sql`CHECKPOINT`
    yield* create(`${run}-last`)
  })

export const runService = (directory: string, mark: (mark: Mark) => void) => {
  const start = (run: string) => Effect.provide(work(run, mark), serviceIn(directory))
  return Effect.runPromise(Effect.provide(Effect.andThen(start("first"), start("second")), Logger.layer([])))
}
