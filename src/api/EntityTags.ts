/** The version of an API key in the headers `ETag` and `If-Match` (RFC 9110 §8.8.3, §13.1.1). */
import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { transformText } from "./TextSchemas.ts"

export const formatETag = (version: number): string => `"${version}"`

const entityTag = /(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"/g
const list = new RegExp(`^(?:${entityTag.source}\\s*(?:,\\s*|$))+$`)

/** The `If-Match` header as a list: either only `*`, or ETags. A weak ETag (`W/…`) never matches. */
export const IfMatch = Schema.String.annotate({
  description: "The request changes the key only if it has one of these versions. `*` or no header: any version.",
  examples: ["*"]
}).pipe(Schema.decodeTo(
  Schema.Array(Schema.String),
  transformText<ReadonlyArray<string>>(
    `* or entity tags in quotes, like "3"`,
    (text) => text.trim() === "*" ? ["*"] : list.test(text.trim()) ? text.match(entityTag) ?? [] : undefined,
    (tags) => tags.join(", ")
  )
))
export type IfMatch = typeof IfMatch.Type

export const isMatch = (ifMatch: IfMatch | undefined, version: number): boolean =>
  ifMatch === undefined || ifMatch.includes("*") || ifMatch.includes(formatETag(version))

const etag = Schema.String.annotate({
  description: "The version of the key, for If-Match (RFC 9110 §8.8.3).",
  examples: [`"3"`]
}).pipe(Schema.optionalKey)

/** Declares a response of `schema`, with an `ETag` header that is made from the value's `version`. */
export const withETag = <Key extends { readonly version: number }, Encoded>(
  schema: Schema.Codec<Key, Encoded>,
  body: Schema.Codec<Key, Encoded> = schema
) =>
  schema.pipe(HttpApiSchema.encodeToWithHeaders({ body, headers: { etag } }, {
    decode: (response) => response.body,
    encode: (key) => ({ body: key, headers: { etag: formatETag(key.version) } })
  }))
