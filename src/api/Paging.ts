/** Declares the paging of lists: a limit, and an opaque cursor in the `Link` header of a response (RFC 8288). */
import { Effect, Result, Schema, SchemaIssue, SchemaTransformation } from "effect"
import { Base64Url } from "effect/encoding"

/** The bounds of the `limit` parameter, which is the maximum number of items in a page (SPEC §4.1, §8). */
export const listLimit = { minimum: 1, maximum: 100, default: 20 }

const expectedLimit = `an integer from ${listLimit.minimum} to ${listLimit.maximum}`

/** Parses a limit. Returns `undefined` for a text that is no integer within the bounds (SPEC §8, Parameter bounds). */
export const parseLimit = (text: string): number | undefined => {
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0
  return limit >= listLimit.minimum && limit <= listLimit.maximum ? limit : undefined
}

/** Makes the schema of the `limit` parameter of a list. The OpenAPI document contains `description` and the bounds. */
export const limit = (description: string) => {
  const documentation: Readonly<Record<string, unknown>> = {
    type: "integer",
    ...listLimit,
    description,
    message: `Expected ${expectedLimit}`
  }
  return Schema.String.annotate(documentation).pipe(
    Schema.decodeTo(
      Schema.Int.check(Schema.isBetween(listLimit)),
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

/**
 * Encodes a text in Base64url without padding (RFC 4648 §5).
 *
 * Most positions are ASCII. For these, `btoa` encodes the text without first converting it to bytes.
 */
const encodeText = (text: string): string => {
  if (!ascii.test(text)) return Base64Url.encode(text)
  const encoded = btoa(text).slice(0, Math.ceil(text.length * 4 / 3))
  return encoded.includes("+") || encoded.includes("/")
    ? encoded.replaceAll("+", "-").replaceAll("/", "_")
    : encoded
}

/**
 * The allowed last characters of a Base64url text, by the length of the text modulo 4.
 *
 * With a remainder of 2 or 3, the unused bits of the last character must be 0.
 */
const lastCharactersByRemainder = ["", "", "AQgw", "AEIMQUYcgkosw048"]

/**
 * Decodes a text of `encodeText`, or returns `undefined` for any other text.
 *
 * It rejects other encodings of the same text, so that each position has exactly one cursor.
 */
const decodeText = (text: string): string | undefined => {
  const last = lastCharactersByRemainder[text.length % 4]
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1 || !(last === "" || last?.includes(text.slice(-1)))) {
    return undefined
  }
  const decoded = atob(text.replaceAll("-", "+").replaceAll("_", "/"))
  return ascii.test(decoded) ? decoded : Result.getOrUndefined(Base64Url.decodeString(text))
}

const expectedCursor = "a cursor of a Link header"

/**
 * Makes the schema of the `cursor` parameter of a list whose pages begin after a `position`.
 *
 * In a URL the cursor is an opaque text: Base64url of the text that `codec.format` returns. Decoding fails unless
 * `codec.parse` returns a position for which `codec.format` returns the same text.
 */
export const cursor = <P>(position: Schema.Schema<P>, codec: {
  /** A position before all items, whose cursor is that of the first page. */
  readonly first: P
  readonly format: (position: P) => string
  readonly parse: (text: string) => P | undefined
}) => {
  const encode = (after: P): string => encodeText(codec.format(after))
  return Schema.String.annotate({
    description: "The position of the page, from the `Link` header of the page before. By default the first page.",
    default: encode(codec.first),
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

/**
 * Makes the schema of a `Link` header that contains the URL of the next page: `path` with its `query` (RFC 8288).
 *
 * Decoding fails if the header has no link with `rel="next"`.
 */
export const nextLink = <S extends Schema.Codec<unknown, { readonly [key: string]: string }>>(path: string, query: S) =>
  Schema.String.annotate({
    description: "The next page, if there is one (RFC 8288).",
    examples: [`<${path}?limit=20&cursor=Nw>; rel="next"`]
  }).pipe(
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
