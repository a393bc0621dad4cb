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
import { UsageHistory } from "./Usage.ts"

const etag = { etag: Schema.optionalKey(Schema.String) }

/** Maps a key to a response whose `ETag` header has the version of the key (RFC 9110 §8.8.3). */
const withETag = <Key extends { readonly version: number }>() => ({
  decode: ({ body }: { readonly body: Key }): Key => body,
  encode: (key: Key) => ({ body: key, headers: { etag: formatETag(key.version) } })
})

const params = { id: KeyId }
const notFound = Errors.errorResponse(Errors.NotFound)
const conflict = Errors.errorResponse(Errors.Conflict)

/** The endpoints with which an operator lists, issues, shows, changes, rotates, revokes and unbans keys. */
export class KeysGroup extends HttpApiGroup.make("keys", { topLevel: true }).add(
  HttpApiEndpoint.post("issueKey", "/keys", {
    payload: NewKey,
    success: IssuedKey.pipe(
      HttpApiSchema.encodeToWithHeaders({ body: IssuedKey.pipe(HttpApiSchema.status(201)), headers: etag }, withETag())
    )
  }).annotateMerge(
    OpenApi.annotations({
      summary: "Issue a key",
      description: "Returns the key with its secret. No other response has the secret."
    })
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
  }).annotateMerge(
    OpenApi.annotations({
      summary: "List keys",
      description: "Returns a page of the keys, oldest first, without secrets. With a filter, a page reads at most " +
        "10,000 keys. It can have fewer keys than `limit`, or none, and still have a `Link` to the next page."
    })
  ),
  HttpApiEndpoint.get("showKey", "/keys/:id", {
    params,
    success: ApiKeyDetails.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKeyDetails, headers: etag }, withETag())),
    error: notFound
  }).annotateMerge(
    OpenApi.annotations({
      summary: "Show a key",
      description: "Returns the key, the state of its rate limit windows, and its ban."
    })
  ),
  HttpApiEndpoint.get("showUsage", "/keys/:id/usage", { params, success: UsageHistory, error: notFound }).annotateMerge(
    OpenApi.annotations({
      summary: "Show the usage of a key over time",
      description: "Returns the requests of the last 60 minutes and 720 hours. An interval without requests is absent."
    })
  ),
  HttpApiEndpoint.patch("updateKey", "/keys/:id", {
    params,
    headers: { "if-match": Schema.optionalKey(IfMatch) },
    payload: KeyChange,
    success: ApiKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKey, headers: etag }, withETag())),
    error: [notFound, conflict, Errors.errorResponse(Errors.PreconditionFailed)]
  }).annotateMerge(
    OpenApi.annotations({
      summary: "Change a key",
      description: "Changes the named fields. The change takes effect within one second. `null` removes the expiry."
    })
  ),
  HttpApiEndpoint.delete("revokeKey", "/keys/:id", { params, error: [notFound, conflict] }).annotateMerge(
    OpenApi.annotations({
      summary: "Revoke a key",
      description: "Ends the key for good, within one second. This cannot be undone."
    })
  ),
  HttpApiEndpoint.post("rotateKey", "/keys/:id/rotate", {
    params,
    payload: [Rotation, Schema.Null],
    success: IssuedKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: IssuedKey, headers: etag }, withETag())),
    error: [notFound, conflict]
  }).annotateMerge(
    OpenApi.annotations({
      summary: "Rotate the secret of a key",
      description: "Returns the key with a new secret. Former secrets work until the grace period ends."
    })
  ),
  HttpApiEndpoint.delete("unbanKey", "/keys/:id/ban", { params, error: notFound }).annotateMerge(OpenApi.annotations({
    summary: "Lift the ban of a key",
    description: "Ends the ban now. Requests that are counted stay counted."
  }))
).annotateMerge(OpenApi.annotations({ description: "API keys." })) {}
