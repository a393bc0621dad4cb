import { Config, Context, DateTime, Duration, Effect, Layer, Option } from "effect"
import { HttpServer } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ApiKeys } from "../api-keys/ApiKeys.ts"
import { AuditLog, CurrentOperator } from "../api-keys/AuditLog.ts"
import { KeyUsage } from "../api-keys/KeyUsage.ts"
import { AdminApi } from "../api/AdminApi.ts"
import { auditCursors } from "../api/Audit.ts"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import { type ApiKey, keyCursors } from "../api/KeySchemas.ts"
import { ConcurrencyLimit } from "../api/OperationMiddleware.ts"
import { listLimit } from "../api/Paging.ts"
import { fixedHeaders } from "../api/ResponseHeaders.ts"
import { topUsageLimit } from "../api/Usage.ts"
import { environment as environmentSetting } from "../config/SettingForms.ts"
import * as Deadline from "../database/Deadline.ts"
import { make as makeConcurrencyLimit, maxOperations } from "../http/ConcurrencyLimit.ts"
import { toServiceUnavailable } from "../http/RateLimit.ts"
import * as RequestBody from "../http/RequestBody.ts"
import { type PortHooks, withHeaders } from "../http/RequestLifecycle.ts"
import { apiPort, makeRoutesAt } from "../http/RoutePaths.ts"
import * as Validation from "../http/Validation.ts"
import type { Decision, Window } from "../rate-limit/Policy.ts"
import { RateLimiter } from "../rate-limit/RateLimiter.ts"

const usageOf = ({ limit, remaining, resetAt }: Window) => ({ limit, remaining, resetAt: DateTime.makeUnsafe(resetAt) })

const banOf = ({ bannedUntil }: Decision) =>
  bannedUntil === undefined ? null : { until: DateTime.makeUnsafe(bannedUntil) }

/** Whether no other process can use the same database, and so count requests of the same keys. */
export class IsSingleProcess extends Context.Service<IsSingleProcess, boolean>()(
  "petstore/management/IsSingleProcess"
) {}

const keyHandlers = HttpApiBuilder.group(AdminApi, "keys", (handlers) =>
  Effect.gen(function*() {
    const [apiKeys, audit, usage, limiter] = [yield* ApiKeys, yield* AuditLog, yield* KeyUsage, yield* RateLimiter]
    const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
    const isSingle = yield* IsSingleProcess
    const peek = ({ id, limits }: Pick<ApiKey, "id" | "limits">) =>
      Effect.mapError(limiter.peek(`key:${id}`, limits), toServiceUnavailable)
    const counting = Effect.map(limiter.counting, (place) => place === "own" && isSingle ? "single" : place)
    return handlers.handleAll({
      issueKey: ({ headers, payload }) => apiKeys.issue(payload, headers["idempotency-key"]),
      listKeys: Effect.fnUntraced(function*({ query }) {
        const { cursor, limit = listLimit.default, ...filter } = query
        const after = cursor === undefined ? undefined : yield* keyCursors.decode(cursor)
        const { keys, next } = yield* apiKeys.list({ ...filter, limit, after })
        // Read the bans concurrently, so that the limiter can send all reads to Redis at once.
        const peeked = yield* Effect.forEach(
          keys,
          (key) => Effect.map(peek(key), (state) => ({ ...key, ban: banOf(state) })),
          { concurrency: "unbounded" }
        )
        const listed = filter.state === "banned" ? peeked.filter(({ ban }) => ban !== null) : peeked
        return { keys: listed, ...next && { next: { ...query, cursor: keyCursors.encode(next) } } }
      }),
      showKey: Effect.fnUntraced(function*({ params: { id } }) {
        const key = yield* apiKeys.find(id)
        const peeked = yield* peek(key)
        const [minute, day] = peeked.windows
        return {
          ...key,
          usage: { minute: usageOf(minute), day: usageOf(day) },
          ban: banOf(peeked),
          counting: yield* counting,
          formerSecrets: yield* apiKeys.formerSecrets(id)
        }
      }),
      showUsage: ({ params: { id } }) => Effect.andThen(apiKeys.find(id), usage.read(id)),
      topUsage: Effect.fnUntraced(function*({ query }) {
        const totals = yield* usage.top({ limit: topUsageLimit, ...query })
        const keys = yield* apiKeys.findAll(totals.map(({ keyId }) => keyId))
        return totals.map(({ keyId, ...counts }) => {
          const { name = null, plan = null } = keys.get(keyId) ?? {}
          return { keyId, name, plan, ...counts }
        })
      }),
      updateKey: ({ headers, params: { id }, payload }) => apiKeys.update(id, payload, headers["if-match"]),
      unbanKey: Effect.fnUntraced(function*({ params: { id } }) {
        const { bannedUntil } = yield* peek(yield* apiKeys.find(id))
        if (bannedUntil === undefined) return
        // Write the audit entry first. If the write fails, the key stays banned.
        yield* withinDeadline(audit.appendUnban(id, bannedUntil))
        yield* Effect.mapError(limiter.unban(`key:${id}`), toServiceUnavailable)
      }),
      revokeKey: ({ headers, params: { id } }) => apiKeys.revoke(id, headers["if-match"]),
      rotateKey: ({ headers, params: { id }, payload }) =>
        apiKeys.rotate(id, Duration.seconds(payload?.gracePeriodSeconds ?? 0), headers["if-match"]),
      endFormerSecrets: ({ headers, params: { id } }) => apiKeys.endFormerSecrets(id, headers["if-match"])
    })
  }))

const auditHandlers = HttpApiBuilder.group(AdminApi, "audit", (handlers) =>
  Effect.gen(function*() {
    const [apiKeys, audit] = [yield* ApiKeys, yield* AuditLog]
    return handlers.handleAll({
      listAudit: Effect.fnUntraced(function*({ query }) {
        const { cursor, limit = listLimit.default, ...filter } = query
        const after = cursor === undefined ? undefined : yield* auditCursors.decode(cursor)
        const { entries, next } = yield* audit.list({ ...filter, limit, after })
        const keys = yield* apiKeys.findAll(entries.map(({ keyId }) => keyId))
        const named = entries.map((entry) => ({ ...entry, keyName: keys.get(entry.keyId)?.name ?? null }))
        return { entries: named, ...next && { next: { ...query, cursor: auditCursors.encode(next) } } }
      })
    })
  }))

const sessionHandlers = HttpApiBuilder.group(AdminApi, "session", (handlers) =>
  Effect.gen(function*() {
    const environment = Option.getOrNull(yield* Config.option(environmentSetting.config))
    return handlers.handle("showSession", () =>
      Effect.map(CurrentOperator, ({ mayChange, operator }) => ({ operator: operator ?? "", mayChange, environment })))
  }))

/** All statements of an operation share one deadline, which `Deadline.shared` sets once the operation has a slot. */
const concurrencyLimit = Layer.effect(
  ConcurrencyLimit,
  Effect.map(
    makeConcurrencyLimit(maxOperations),
    (limit) => ConcurrencyLimit.of((httpEffect) => limit(Deadline.shared(httpEffect)))
  )
)

export const layer = HttpApiBuilder.layer(AdminApi).pipe(
  Layer.provide([keyHandlers, auditHandlers, sessionHandlers]),
  Layer.provide([RequestBody.layer, concurrencyLimit, Validation.layer]),
  Layer.provide(HttpServer.layerServices)
)

export const makeHooks = (pages: ReadonlyArray<string>): PortHooks => ({
  routesAt: makeRoutesAt(AdminApi, pages, apiPort),
  trustedProxies: [],
  completeResponse: (_, { requestId }, response) =>
    Effect.succeed(withHeaders(response, fixedHeaders, response.headers, { "x-request-id": requestId })),
  abort: () => Effect.void
})
