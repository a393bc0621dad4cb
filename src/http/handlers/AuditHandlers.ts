/** The handlers of the management port's audit log. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApiKeys } from "../../api-keys/ApiKeys.ts"
import { AdminApi } from "../../api/AdminApi.ts"
import { listLimit } from "../../api/Paging.ts"

/** The handlers of the `audit` group of `AdminApi`. */
export const layer = HttpApiBuilder.group(
  AdminApi,
  "audit",
  Effect.fnUntraced(function*(handlers) {
    const { audit } = yield* ApiKeys
    return handlers.handleAll({
      listAudit: ({ query }) =>
        Effect.map(
          audit.list({ limit: query.limit ?? listLimit.default, after: query.cursor, keyId: query.key }),
          ({ entries, next }) => next === undefined ? { entries } : { entries, next: { ...query, cursor: next } }
        )
    })
  })
)
