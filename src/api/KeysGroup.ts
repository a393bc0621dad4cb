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
  }),
  HttpApiEndpoint.get("listKeys", "/keys", {
    query: KeysQuery.fields,
    success: KeysPage.pipe(HttpApiSchema.encodeToWithHeaders({
      body: Schema.Array(ListedKey),
      headers: { link: Schema.optionalKey(nextLink("/admin/keys", KeysQuery)) }
    }, {
      decode: ({ body, headers: { link } }) => ({ keys: body, ...link && { next: link } }),
      encode: ({ keys, next }) => ({ body: keys, headers: { ...next && { link: next } } })
    }))
  }),
  HttpApiEndpoint.get("showKey", "/keys/:id", {
    params,
    success: ApiKeyDetails.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKeyDetails, headers: etag }, withETag())),
    error: notFound
  }),
  HttpApiEndpoint.patch("updateKey", "/keys/:id", {
    params,
    headers: { "if-match": Schema.optionalKey(IfMatch) },
    payload: KeyChange,
    success: ApiKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: ApiKey, headers: etag }, withETag())),
    error: [notFound, conflict, Errors.errorResponse(Errors.PreconditionFailed)]
  }),
  HttpApiEndpoint.delete("revokeKey", "/keys/:id", { params, error: [notFound, conflict] }),
  HttpApiEndpoint.post("rotateKey", "/keys/:id/rotate", {
    params,
    payload: [Rotation, Schema.Null],
    success: IssuedKey.pipe(HttpApiSchema.encodeToWithHeaders({ body: IssuedKey, headers: etag }, withETag())),
    error: [notFound, conflict]
  }),
  HttpApiEndpoint.delete("unbanKey", "/keys/:id/ban", { params, error: notFound })
).annotateMerge(OpenApi.annotations({ description: "API keys." })) {}
