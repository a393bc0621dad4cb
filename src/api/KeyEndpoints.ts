import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { IfMatch, withETag } from "./EntityTags.ts"
import * as Errors from "./Errors.ts"
import { errorResponse } from "./ErrorSchemas.ts"
import { inOrder } from "./InOrder.ts"
import * as Keys from "./KeySchemas.ts"
import { bodySteps, operationSteps } from "./OperationMiddleware.ts"
import { linkHeader } from "./Paging.ts"
import { idempotencyKey } from "./TextSchemas.ts"
import { KeyTotals, TopUsageQuery, UsageHistory } from "./Usage.ts"

const params = { id: Keys.KeyId }
const notFound = errorResponse(Errors.NotFound)
const conflict = errorResponse(Errors.Conflict)
const headers = { "if-match": Schema.optionalKey(IfMatch) }
const changeErrors = [notFound, conflict, errorResponse(Errors.PreconditionFailed)] as const

export class KeysGroup extends HttpApiGroup.make("keys", { topLevel: true }).add(
  HttpApiEndpoint.post("issueKey", "/keys", {
    headers: {
      "idempotency-key": Schema.optionalKey(idempotencyKey("Keeps a retry from issuing a second key.", "issue-acme-1"))
    },
    payload: Keys.NewKey,
    success: withETag(Keys.IssuedKey, Keys.IssuedKey.pipe(HttpApiSchema.status(201))),
    error: conflict
  }).pipe(inOrder(...bodySteps)).annotateMerge(OpenApi.annotations({
    summary: "Issue a key",
    description: "Returns the key with its secret, which is not shown again. A second request with the same " +
      "`Idempotency-Key` issues no key and gets 409, which names the key that the first request issued."
  })),
  HttpApiEndpoint.get("listKeys", "/keys", {
    query: Keys.KeysQuery.fields,
    success: Keys.KeysPage.pipe(HttpApiSchema.encodeToWithHeaders({
      body: Schema.Array(Keys.ListedKey),
      headers: linkHeader("/admin/keys", Keys.KeysQuery)
    }, {
      decode: ({ body, headers: { link } }) => ({ keys: body, ...link && { next: link } }),
      encode: ({ keys, next }) => ({ body: keys, headers: next ? { link: next } : {} })
    }))
  }).pipe(inOrder(...operationSteps)).annotateMerge(OpenApi.annotations({
    summary: "List keys",
    description:
      "Returns a page of the keys, without secrets. A page of one state, plan or expiry can have fewer keys than " +
      "`limit`, or none, and still have a `Link` to the next page."
  })),
  HttpApiEndpoint.get("showKey", "/keys/:id", { params, success: withETag(Keys.ApiKeyDetails), error: notFound })
    .pipe(inOrder(...operationSteps))
    .annotateMerge(OpenApi.annotations({
      summary: "Show a key",
      description: "Returns the key, its rate limit windows, its ban, and the former secrets in their grace period."
    })),
  HttpApiEndpoint.get("showUsage", "/keys/:id/usage", { params, success: UsageHistory, error: notFound })
    .pipe(inOrder(...operationSteps))
    .annotateMerge(OpenApi.annotations({
      summary: "Show the usage of a key over time",
      description: "Returns request counts by minute (the last 60) and by hour (up to 720). Omits empty intervals."
    })),
  HttpApiEndpoint.get("topUsage", "/usage", {
    query: TopUsageQuery.fields,
    success: Schema.Array(KeyTotals).annotate({ description: "The keys, most requests first." })
  }).pipe(inOrder(...operationSteps)).annotateMerge(OpenApi.annotations({
    summary: "List the keys with the most requests",
    description: "Returns the keys with the most requests of one kind in the current hour or day of " +
      "UTC, in descending order. Keys without such requests are omitted."
  })),
  HttpApiEndpoint.patch("updateKey", "/keys/:id", {
    params,
    headers,
    payload: Keys.KeyChange,
    success: withETag(Keys.ApiKey),
    error: changeErrors
  }).pipe(inOrder(...bodySteps)).annotateMerge(OpenApi.annotations({
    summary: "Change a key",
    description: "Changes the fields in the body. The change takes effect within one second. `\"expiresAt\": null` " +
      "removes the expiry. Requests with a disabled key get 401 until the key is enabled again."
  })),
  HttpApiEndpoint.delete("revokeKey", "/keys/:id", { params, headers, error: changeErrors })
    .pipe(inOrder(...operationSteps))
    .annotateMerge(OpenApi.annotations({
      summary: "Revoke a key",
      description: "Revokes the key permanently, within one second. This cannot be undone."
    })),
  HttpApiEndpoint.post("rotateKey", "/keys/:id/rotate", {
    params,
    headers,
    payload: [Keys.Rotation, Schema.Null],
    success: withETag(Keys.IssuedKey),
    error: changeErrors
  }).pipe(inOrder(...bodySteps)).annotateMerge(OpenApi.annotations({
    summary: "Rotate the secret of a key",
    description: "Returns the key with a new secret. Former secrets work until the grace period ends.",
    transform: ({ requestBody, ...operation }) => ({ ...operation, requestBody: { ...requestBody, required: false } })
  })),
  HttpApiEndpoint.delete("endFormerSecrets", "/keys/:id/former-secrets", { params, headers, error: changeErrors })
    .pipe(inOrder(...operationSteps))
    .annotateMerge(OpenApi.annotations({
      summary: "Revoke the former secrets of a key",
      description: "Revokes all former secrets now. The current secret still works."
    })),
  HttpApiEndpoint.delete("unbanKey", "/keys/:id/ban", { params, error: notFound }).pipe(inOrder(...operationSteps))
    .annotateMerge(OpenApi.annotations({
      summary: "Lift the ban on a key",
      description:
        "Ends the ban now; without Redis, or while it is silent, only in one process. Requests already counted still " +
        "count toward the limits."
    }))
).annotate(OpenApi.Description, "API keys.") {}
