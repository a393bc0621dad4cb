/** Checks of request bodies: plain JSON text of a bounded size. */
import { ByteSize, Effect } from "effect"
import type { Headers, HttpServerError, HttpServerRequest } from "effect/http"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../../api/Errors.ts"
import { isServerSource } from "../response/ServerSource.ts"

/** The maximum size of a body in bytes. */
export const maxBodyBytes = 65_536
/** The same maximum, in the form of Effect's `MaxBodySize`. */
export const maxSize = ByteSize.bytes(maxBodyBytes)

/** The errors for bodies that the service does not accept. */
export const payloadTooLarge = new PayloadTooLarge()
export const unsupportedMediaType = new UnsupportedMediaType()

/**
 * The media type of JSON in UTF-8. Its parameters may be empty (RFC 9110 §5.6.6). Each space can match in only one way,
 * so that a long header takes linear time.
 */
const json = /^application\/json\s*(?:;\s*(?:charset="?utf-8"?\s*)?)*$/i

/**
 * Rejects a body that is too large, compressed, of another content type, or not UTF-8. A decoder would replace invalid
 * bytes, and the service would store other text than the client sent.
 */
export const rejectOtherThanJson = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<void, InvalidRequest | PayloadTooLarge | UnsupportedMediaType> =>
  // A body that declares more than the maximum is rejected before it arrives.
  Number(request.headers["content-length"]) > maxBodyBytes
    ? Effect.fail(payloadTooLarge)
    : Effect.flatMap(
      withoutSlot(request, Effect.orDie(bodyOf(request))),
      (body): Effect.Effect<void, InvalidRequest | PayloadTooLarge | UnsupportedMediaType> =>
        errorOfBody(body, request.headers) ?? Effect.void
    )

/** A body in memory. */
export interface Body {
  readonly byteLength: number
  /** The text, with its byte order mark, or `undefined` if the bytes are not UTF-8. */
  readonly text: string | undefined
}

/** Marks a request that reads its own body. */
export const ReadsBody = Symbol.for("petstore/http/ReadsBody")

/** A request that reads its own body, at a lower cost than Effect's requests (`fast-path/FastRequest.ts`). */
export interface BodyReader {
  readonly [ReadsBody]: Effect.Effect<Body, HttpServerError.HttpServerError>
}

const isBodyReader = (request: object): request is BodyReader => ReadsBody in request

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const bodyOf = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<Body, HttpServerError.HttpServerError> =>
  isBodyReader(request)
    ? request[ReadsBody]
    : Effect.map(request.arrayBuffer, (bytes) => ({ byteLength: bytes.byteLength, text: decodeUtf8(bytes) }))

const decodeUtf8 = (bytes: ArrayBuffer): string | undefined => {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

/** Releases the request's slot while its body arrives. */
const withoutSlot = <A>({ source }: HttpServerRequest.HttpServerRequest, body: Effect.Effect<A>): Effect.Effect<A> =>
  isServerSource(source) && source.requestContext !== undefined && !source.complete
    ? Effect.orDie(source.requestContext.slot.whileWaiting(body))
    : body

const errorOfBody = (
  { byteLength, text }: Body,
  headers: Headers.Headers
): InvalidRequest | PayloadTooLarge | UnsupportedMediaType | undefined => {
  if (byteLength > maxBodyBytes) return payloadTooLarge
  if (byteLength === 0) return undefined
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings are case-insensitive (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return unsupportedMediaType
  }
  const expected = text === undefined ? "valid UTF-8" : expectedOf(text)
  return expected === undefined
    ? undefined
    : new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })
}

/** Returns what was expected of a text that not all parsers understand alike, or `undefined` for a valid one. */
const expectedOf = (text: string): string | undefined => {
  // No JSON text begins with one (RFC 8259 §8.1).
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    // A text that serializes to itself has no duplicate name. Most bodies need no further check.
    if (isShort(text) && JSON.stringify(JSON.parse(text)) === text) return undefined
    JSON.parse(text)
  } catch {
    return "valid JSON"
  }
  return expectedOfNames(text)
}

/** Whether a text is too short for too many levels, and contains no `__proto__`. */
const isShort = (text: string): boolean => text.length <= maxLevels && !text.includes("__proto__")

/** The maximum of nested levels. Some parsers use stack space for each. */
const maxLevels = 1_000

const token = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g

/**
 * Checks names and levels of a JSON text. Parsers treat duplicate names differently (RFC 8259 §4), attackers use the
 * name `__proto__`, and deep nesting overflows stacks.
 */
const expectedOfNames = (text: string): string | undefined => {
  const objects: Array<Set<string> | undefined> = []
  let last = ""
  for (const [found] of text.matchAll(token)) {
    if (found === "{" || found === "[") {
      if (objects.push(found === "{" ? new Set() : undefined) > maxLevels) return "JSON of at most 1,000 levels"
    } else if (found === "}" || found === "]") objects.pop()
    else if (found === ":") {
      const names = objects.at(-1)
      const name = last.includes("\\") ? String(JSON.parse(last)) : last.slice(1, -1)
      if (name === "__proto__" || names?.has(name)) return "JSON without duplicate names or __proto__"
      names?.add(name)
    } else last = found
  }
  return undefined
}
