/** Keyset pagination: the `Link` header has an opaque `cursor` for the next page, if there is one (RFC 8288). */
import { Brand, Effect, Predicate, Result, Schema, SchemaTransformation } from "effect"
import { Base64Url } from "effect/encoding"
import { InvalidRequest } from "./Errors.ts"
import { documented, transformText } from "./TextSchemas.ts"

export const listLimit = { minimum: 1, maximum: 100, default: 20 }

const expectedLimit = `one integer from ${listLimit.minimum} to ${listLimit.maximum}`

const parseLimit = (text: string): number | undefined => /^\d{1,3}$/.test(text) ? Number(text) : undefined

export const limit = (description: string, defaultLimit = listLimit.default) =>
  documented(Predicate.isString, expectedLimit, { type: "integer", ...listLimit, default: defaultLimit, description })
    .pipe(Schema.decodeTo(
      Schema.Int.check(Schema.isBetween(listLimit, { expected: expectedLimit })),
      transformText(expectedLimit, parseLimit, String)
    ))

const ascii = /^[ -~]*$/

/** Encodes as unpadded base64url (RFC 4648 §5). For ASCII, uses `btoa`, several times as fast as `Base64Url`. */
const encodeText = (text: string): string => {
  if (!ascii.test(text)) return Base64Url.encode(text)
  const encoded = btoa(text).slice(0, Math.ceil(text.length * 4 / 3))
  return /[+/]/.test(encoded) ? encoded.replaceAll("+", "-").replaceAll("/", "_") : encoded
}

const decodeText = (text: string): string | undefined => {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return undefined
  const decoded = atob(text.replaceAll("-", "+").replaceAll("_", "/"))
  return ascii.test(decoded) ? decoded : Result.getOrUndefined(Base64Url.decodeString(text))
}

/**
 * The position of a page, from `next` of the previous page. Opaque: only the service reads it, and its form may change.
 */
export const Cursor = Schema.String.check(
  Schema.makeFilter(() => true, { toJsonSchema: () => ({ pattern: "^[A-Za-z0-9_-]+$" }) })
).pipe(Schema.brand("Cursor")).annotate({
  description: "The position of the page, from the `Link` header of the previous page. Defaults to the first page."
})
export type Cursor = typeof Cursor.Type

const toCursor = Brand.nominal<Cursor>()

const invalidCursor = new InvalidRequest({
  message: "Invalid request: query.cursor: expected a cursor from a Link header."
})

/**
 * Makes the encoder and the decoder of a list's cursors. A cursor is `format(position)` in base64url. The decoder
 * rejects any text that the encoder would not produce.
 */
export const makeCursorCodec = <P>(format: (position: P) => string, parse: (text: string) => P | undefined) => {
  const encode = (position: P): Cursor => toCursor(encodeText(format(position)))
  return {
    encode,
    decode: (cursor: Cursor): Effect.Effect<P, InvalidRequest> => {
      const position = parse(decodeText(cursor) ?? "")
      return position !== undefined && encode(position) === cursor
        ? Effect.succeed(position)
        : Effect.fail(invalidCursor)
    }
  }
}

const parseNextLink = (header: string) => {
  const target = /<[^>?]*\?([^>]*)>\s*;\s*rel="?next"?/.exec(header)?.[1]
  return target === undefined ? undefined : Object.fromEntries(new URLSearchParams(target))
}

/** The `Link` header of a list. Decodes to the query of the next page, or to `undefined` without a `next` link. */
export const linkHeader = <S extends Schema.Codec<unknown, { readonly [key: string]: string }>>(
  path: string,
  query: S
) => {
  const format = (next: S["Encoded"] | undefined): string => {
    const parameters = Object.entries(next ?? {}).map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    return `<${path}?${parameters.join("&")}>; rel="next"`
  }
  const link = Schema.String.annotate({
    description: "The next page, if there is one (RFC 8288).",
    examples: [`<${path}?limit=20&cursor=Nw>; rel="next"`]
  }).pipe(
    Schema.decodeTo(
      Schema.UndefinedOr(query),
      SchemaTransformation.transform({ decode: parseNextLink, encode: format })
    )
  )
  return { link: Schema.optionalKey(link) }
}

export const cutPage = <A>(found: ReadonlyArray<A>, size: number) =>
  found.length <= size ? { items: found, last: undefined } : { items: found.slice(0, size), last: found[size - 1] }
