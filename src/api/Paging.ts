/** Paging through a list: an opaque cursor, handed out in a `Link` header (RFC 8288). */
import { Effect, Result, Schema, SchemaIssue, SchemaTransformation } from "effect"
import { Base64Url } from "effect/encoding"
import { Int64, parseInteger } from "./Int64.ts"

const expected = "a cursor of a Link header"

const encode = (after: bigint): string => Base64Url.encode(String(after))

/** The id after which a page begins. On the wire it is a text to hand back as it came. */
export const Cursor = Schema.String.annotate({
  description: "Where to go on: from the `Link` header of the page before.",
  message: `Expected ${expected}`
}).pipe(
  Schema.decodeTo(
    Int64,
    SchemaTransformation.transformEffect({
      decode: (text, options) => {
        const after = Result.getOrUndefined(Result.map(Base64Url.decodeString(text), parseInteger))
        return after !== undefined && encode(after) === text
          ? Effect.succeed(after)
          : Effect.fail(new SchemaIssue.InvalidValue({ expected }, text, options))
      },
      encode: (after) => Effect.succeed(encode(after))
    })
  )
)

/** The query of the next page of `path`, as a `Link` header says it. */
export const nextLink = <S extends Schema.Codec<unknown, { readonly [key: string]: string }>>(path: string, query: S) =>
  Schema.String.pipe(
    Schema.decodeTo(
      query,
      SchemaTransformation.transformEffect<S["Encoded"], string>({
        decode: (link, options) => {
          const target = /<[^>?]*\?([^>]*)>\s*;\s*rel="?next"?/.exec(link)?.[1]
          return target === undefined
            ? Effect.fail(new SchemaIssue.InvalidValue({ expected: `a link with rel="next"` }, link, options))
            : Effect.succeed(Object.fromEntries(new URLSearchParams(target)))
        },
        encode: (next) => Effect.succeed(`<${path}?${new URLSearchParams(next).toString()}>; rel="next"`)
      })
    )
  )
