/** Provides the API keys on PostgreSQL, in the tables of `migrations/`. */
import { Effect, Layer } from "effect"
import { hash } from "node:crypto"
import { ChangePoller } from "../database/ChangePoller.ts"
import * as ApiKeys from "./ApiKeys.ts"
import * as KeyCache from "./KeyCache.ts"
import { sqlStore } from "./SqlApiKeyStore.ts"
import * as SqlAuditStore from "./SqlAuditStore.ts"
import * as SqlUsageStore from "./SqlUsageStore.ts"

/**
 * Returns the SHA-256 of a secret, in hexadecimal: the database stores nothing else of it. A slow hash would cost time
 * and add no protection, because 190 random bits cannot be guessed.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)

/** Stores keys on PostgreSQL, and caches them in this process. */
export const layer = Layer.effect(
  ApiKeys.ApiKeys,
  Effect.gen(function*() {
    const store = yield* sqlStore
    const lookup = yield* KeyCache.make(store, yield* ChangePoller)
    return yield* ApiKeys.make({
      store,
      lookup,
      audit: yield* SqlAuditStore.sqlStore,
      usage: yield* SqlUsageStore.sqlStore,
      hash: hashSecret
    })
  })
).pipe(Layer.provide(ChangePoller.layer))
