/** Optimistic locking: with `If-Match`, a client changes only the version that it has read (RFC 9110 §8.8.3). */
import { Schema } from "effect"
import { transformText } from "./Text.ts"

export const formatETag = (version: number): string => `"${version}"`

const entityTag = /(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"/g
const list = new RegExp(`^(?:${entityTag.source}\\s*(?:,\\s*|$))+$`)

/** `If-Match` (RFC 9110 §13.1.1): `["*"]`, or quoted versions. A weak tag such as `W/"3"` matches no version. */
export const IfMatch = Schema.String.annotate({
  description: "The versions of the key that the request may change, or `*` for any. Without it, any version.",
  examples: ["*"]
}).pipe(
  Schema.decodeTo(
    Schema.Array(Schema.String),
    transformText<ReadonlyArray<string>>(
      `* or entity tags in quotes, like "3"`,
      (text) => text.trim() === "*" ? ["*"] : list.test(text.trim()) ? text.match(entityTag) ?? [] : undefined,
      (tags) => tags.join(", ")
    )
  )
)
export type IfMatch = typeof IfMatch.Type

export const isMatch = (ifMatch: IfMatch | undefined, version: number): boolean =>
  ifMatch === undefined || ifMatch.includes("*") || ifMatch.includes(formatETag(version))
