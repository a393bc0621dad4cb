/** Declares the endpoints of API keys on the management port. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { formatETag, IfMatch } from "./EntityTag.ts"
import * as Errors from "./Errors.ts"
import {
  ApiKey,
  ApiKeyDetails,
  IssuedKey,
  KeyChange,
  KeyId,
  KeysPage,
  KeysQuery,
  ListedKey,
  NewKey,
  Rotation
} from "./Keys.ts"
import { nextLink } from "./Paging.ts"
import { idempotencyKey } from "./Text.ts"
import { UsageHistory } from "./Usage.ts"

const etag = {
  etag: Schema.optionalKey(
    Schema.String.annotate({
      description: "The version of the key, for If-Match (RFC 9110 §8.8.3).",
      examples: [`"3"`]
    })
  )
}

/** Maps a key to a response whose `ETag` header has the version of the key (RFC 9110 §8.8.3). */
const withETag = <Key extends { readonly version: number }>() => ({
  decode: ({ body }: { readonly body: Key }): Key => body,
  encode: (key: Key) => ({ body: key, headers: { etag: formatETag(key.version) } })
})

const params = { id: KeyId }
const notFound = Errors.errorResponse(Errors.NotFound)
const conflict = Errors.errorResponse(Errors.Conflict)
const headers = { "if-match": Schema.optionalKey(IfMatch) }
const changeErrors = [notFound, conflict, Errors.errorResponse(Errors.PreconditionFailed)] as const

/** Makes the success of an endpoint without a response body. */
const done = (description: string) => HttpApiSchema.NoContent.annotate({ description })

/** The endpoints with which an operator lists, issues, shows, changes, rotates, revokes and unbans keys. */
export class KeysGroup extends HttpApiGroup.make("keys", { topLevel: true }).add(
  HttpApiEndpoint.post("issueKey", "/keys", {
    headers: {
      "idempotency-key": Schema.optionalKey(idempotencyKey("Identifies this key for a retry.", "issue-acme-1"))
    },
    payload: NewKey,
    success: IssuedKey.pipe(
      HttpApiSchema.encodeToWithHeaders({ body: IssuedKey.pipe(HttpApiSchema.status(201)), headers: etag }, withETag())
    ),
    error: conflict
  })
    .annotate(OpenApi.Summary, "Issue a key")
    .annotate(
      OpenApi.Description,
      "Returns the key with its secret. No other response has the secret. A second request with the same " +
        "`Idempotency-Key` issues no key and gets 409, which names the key of the first."
    ),
  HttpApiEndpoint.get("listKeys", "/keys", {
    query: KeysQuery.fields,
    success: KeysPage.pipe(HttpApiSchema.encodeToWithHeaders({
      body: Schema.Array(ListedKey),
      headers: { link: Schema.optionalKey(nextLink("/admin/keys", KeysQuery)) }
    }, {
      decode: ({ body, headers: { link } }) => ({ keys: body, ...link && { next: link } }),
      encode: ({ keys, next }) => ({ body: keys, headers: { ...next && { link: next } } })
    }))
  })
    .annotate(OpenApi.Summary, "List keys")
    .annotate(
      OpenApi.Description,
      "Returns a page of the keys, without secrets. A page of banned keys can have fewer keys than `limit`, or none, " +
        "and still have a `Link` to the next page."
    ),
  HttpApiEndpoint.get("showKey", "/keys/:id", {
    params,
    success: ApiKeyDetails.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKeyDetails, headers: etag }, withETag())),
    error: notFound
  })
    .annotate(OpenApi.Summary, "Show a key")
    .annotate(
      OpenApi.Description,
      "Returns the key, its rate limit windows, its ban, and its former secrets that still work."
    ),
  HttpApiEndpoint.get("showUsage", "/keys/:id/usage", { params, success: UsageHistory, error: notFound })
    .annotate(OpenApi.Summary, "Show the usage of a key over time")
    .annotate(
      OpenApi.Description,
      "Returns the requests of the last 60 minutes and 720 hours. An interval without requests is absent."
    ),
  HttpApiEndpoint.patch("updateKey", "/keys/:id", {
    params,
    headers,
    payload: KeyChange,
    success: ApiKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKey, headers: etag }, withETag())),
    error: changeErrors
  })
    .annotate(OpenApi.Summary, "Change a key")
    .annotate(
      OpenApi.Description,
      "Changes the named fields. The change takes effect within one second. `null` removes the expiry."
    ),
  HttpApiEndpoint.delete("revokeKey", "/keys/:id", {
    params,
    headers,
    success: done("The key is revoked."),
    error: changeErrors
  })
    .annotate(OpenApi.Summary, "Revoke a key")
    .annotate(OpenApi.Description, "Ends the key for good, within one second. This cannot be undone."),
  HttpApiEndpoint.post("rotateKey", "/keys/:id/rotate", {
    params,
    headers,
    payload: [Rotation, Schema.Null],
    success: IssuedKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: IssuedKey, headers: etag }, withETag())),
    error: changeErrors
  })
    .annotate(OpenApi.Summary, "Rotate the secret of a key")
    .annotate(
      OpenApi.Description,
      "Returns the key with a new secret. Former secrets work until the grace period ends."
    ),
  HttpApiEndpoint.delete("endFormerSecrets", "/keys/:id/former-secrets", {
    params,
    headers,
    success: done("Only the current secret works."),
    error: changeErrors
  })
    .annotate(OpenApi.Summary, "End the former secrets of a key")
    .annotate(
      OpenApi.Description,
      "Ends the grace periods of all former secrets now. The current secret still works."
    ),
  HttpApiEndpoint.delete("unbanKey", "/keys/:id/ban", {
    params,
    success: done("The key is not banned."),
    error: notFound
  })
    .annotate(OpenApi.Summary, "Lift the ban of a key")
    .annotate(OpenApi.Description, "Ends the ban now. Requests that are counted stay counted.")
).annotate(OpenApi.Description, "API keys.") {}
