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

const ascii = /^[ -~]*$/

/** Base64url without padding (RFC 4648 §5). Positions are mostly ASCII, for which no bytes are needed. */
const encodeText = (text: string): string => {
  if (!ascii.test(text)) return Base64Url.encode(text)
  const encoded = btoa(text).slice(0, Math.ceil(text.length * 4 / 3))
  return encoded.includes("+") || encoded.includes("/")
    ? encoded.replaceAll("+", "-").replaceAll("/", "_")
    : encoded
}

/** The last characters of texts of 2 and 3 characters more than a multiple of 4, whose unused bits are 0. */
const lastCharacters = ["", "", "AQgw", "AEIMQUYcgkosw048"]

/** The text that `encodeText` encodes so, and not otherwise: a position has one cursor. */
const decodeText = (text: string): string | undefined => {
  const last = lastCharacters[text.length % 4]
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1 || !(last === "" || last?.includes(text.slice(-1)))) {
    return undefined
  }
  const decoded = atob(text.replaceAll("-", "+").replaceAll("_", "/"))
  return ascii.test(decoded) ? decoded : Result.getOrUndefined(Base64Url.decodeString(text))
}

const expectedCursor = "a cursor of a Link header"

/** The `cursor` parameter of a list whose pages begin after a `position`. On the wire it is an opaque text. */
export const cursor = <P>(position: Schema.Schema<P>, codec: {
  readonly format: (position: P) => string
  readonly parse: (text: string) => P | undefined
}) => {
  const encode = (after: P): string => encodeText(codec.format(after))
  return Schema.String.annotate({
    description: "Where to go on: from the `Link` header of the page before.",
    message: `Expected ${expectedCursor}`
  }).pipe(
    Schema.decodeTo(
      Schema.toType(position),
      SchemaTransformation.transformEffect<P, string>({
        decode: (text, options) => {
          const decoded = decodeText(text)
          const after = decoded === undefined ? undefined : codec.parse(decoded)
          return after !== undefined && codec.format(after) === decoded
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
        encode: (next) => {
          const parameters = Object.entries(next).map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
          return Effect.succeed(`<${path}?${parameters.join("&")}>; rel="next"`)
        }
      })
    )
  )
