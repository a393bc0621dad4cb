/** The handlers of the management port's key operations: issue, list, show, update, unban, revoke and rotate. */
import { DateTime, Duration, Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApiKeys } from "../../api-keys/ApiKeys.ts"
import { AdminApi } from "../../api/AdminApi.ts"
import { listLimit } from "../../api/Paging.ts"
import type { Window } from "../../rate-limit/Policy.ts"
import { RateLimiter } from "../../rate-limit/RateLimiter.ts"

/** Encodes a rate-limit window for the operator. `resetAt` becomes a `DateTime`. */
const usageOf = ({ limit, remaining, resetAt }: Window) => ({ limit, remaining, resetAt: DateTime.makeUnsafe(resetAt) })

/** The handlers of the `keys` group of `AdminApi`. */
export const layer = HttpApiBuilder.group(
  AdminApi,
  "keys",
  Effect.fnUntraced(function*(handlers) {
    const apiKeys = yield* ApiKeys
    const limiter = yield* RateLimiter
    return handlers.handleAll({
      issueKey: ({ payload }) => apiKeys.issue(payload),
      listKeys: ({ query }) =>
        Effect.map(
          apiKeys.list({ limit: query.limit ?? listLimit.default, after: query.cursor }),
          ({ keys, next }) => next === undefined ? { keys } : { keys, next: { ...query, cursor: next } }
        ),
      showKey: Effect.fnUntraced(function*({ params: { id } }) {
        const key = yield* apiKeys.find(id)
        const { bannedUntil, windows: [minute, day] } = yield* limiter.peek(`key:${id}`, key.limits)
        return {
          ...key,
          usage: { minute: usageOf(minute), day: usageOf(day) },
          ban: bannedUntil === undefined ? null : { until: DateTime.makeUnsafe(bannedUntil) }
        }
      }),
      updateKey: ({ headers, params: { id }, payload }) => apiKeys.update(id, payload, headers["if-match"]),
      unbanKey: Effect.fnUntraced(function*({ params: { id } }) {
        const { limits } = yield* apiKeys.find(id)
        const { bannedUntil } = yield* limiter.peek(`key:${id}`, limits)
        const before = { bannedUntil: bannedUntil === undefined ? null : new Date(bannedUntil).toISOString() }
        // The entry is stored first, because lifting a ban cannot fail.
        yield* apiKeys.audit.record(
          "unban",
          (append) => Effect.andThen(append(id, before, { bannedUntil: null }), limiter.unban(`key:${id}`))
        )
      }),
      revokeKey: ({ params: { id } }) => apiKeys.revoke(id),
      rotateKey: ({ params: { id }, payload }) => apiKeys.rotate(id, Duration.seconds(payload?.gracePeriodSeconds ?? 0))
    })
  })
)
