/** Paging through a list: a limit, and an opaque cursor that is handed out in a `Link` header (RFC 8288). */
import { Effect, Result, Schema, SchemaIssue, SchemaTransformation } from "effect"
import { Base64Url } from "effect/encoding"

/** How many items a page may hold (SPEC §4.1, §8). */
export const listLimit = { minimum: 1, maximum: 100, default: 20 }

const expectedLimit = `an integer from ${listLimit.minimum} to ${listLimit.maximum}`

/** Parses a limit from its text (SPEC §8, Parameter bounds). */
export const parseLimit = (text: string): number | undefined => {
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0
  return limit >= listLimit.minimum && limit <= listLimit.maximum ? limit : undefined
}

/** The `limit` parameter of a list, with what the OpenAPI document says of it. */
export const limit = (description: string) => {
  const documentation: Readonly<Record<string, unknown>> = {
    type: "integer",
    ...listLimit,
    description,
    message: `Expected ${expectedLimit}`
  }
  return Schema.String.annotate(documentation).pipe(
    Schema.decodeTo(
      Schema.Int,
      SchemaTransformation.transformEffect({
        decode: (text, options) => {
          const parsed = parseLimit(text)
          return parsed === undefined
            ? Effect.fail(new SchemaIssue.InvalidValue({ expected: expectedLimit }, text, options))
            : Effect.succeed(parsed)
        },
        encode: (value) => Effect.succeed(String(value))
      })
    )
  )
}

const expectedCursor = "a cursor of a Link header"

/** The `cursor` parameter of a list whose pages begin after a `position`. On the wire it is an opaque text. */
export const cursor = <P>(position: Schema.Schema<P>, codec: {
  readonly format: (position: P) => string
  readonly parse: (text: string) => P | undefined
}) => {
  const encode = (after: P): string => Base64Url.encode(codec.format(after))
  return Schema.String.annotate({
    description: "Where to go on: from the `Link` header of the page before.",
    message: `Expected ${expectedCursor}`
  }).pipe(
    Schema.decodeTo(
      Schema.toType(position),
      SchemaTransformation.transformEffect<P, string>({
        decode: (text, options) => {
          const after = Result.getOrUndefined(Result.map(Base64Url.decodeString(text), codec.parse))
          return after !== undefined && encode(after) === text
            ? Effect.succeed(after)
            : Effect.fail(new SchemaIssue.InvalidValue({ expected: expectedCursor }, text, options))
        },
        encode: (after) => Effect.succeed(encode(after))
      })
    )
  )
}

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
