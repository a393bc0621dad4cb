/** Checks of request bodies: plain JSON text of a bounded size. */
import { ByteSize, Effect } from "effect"
import type { Headers, HttpServerRequest } from "effect/http"
import { isUtf8 } from "node:buffer"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../../api/Errors.ts"
import { FastRequest } from "../fast-path/FastRequest.ts"
import { IncomingRequest } from "../node/IncomingRequest.ts"

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
      withoutSlot(request, Effect.orDie(bytesOf(request))),
      (bytes): Effect.Effect<void, InvalidRequest | PayloadTooLarge | UnsupportedMediaType> =>
        errorOfBody(bytes, request.headers) ?? Effect.void
    )

const bytesOf = (request: HttpServerRequest.HttpServerRequest) =>
  request instanceof FastRequest ? request.body : Effect.map(request.arrayBuffer, (bytes) => Buffer.from(bytes))

/** Releases the request's slot while its body arrives. */
const withoutSlot = <A>({ source }: HttpServerRequest.HttpServerRequest, body: Effect.Effect<A>): Effect.Effect<A> =>
  source instanceof IncomingRequest && source.requestContext !== undefined && !source.complete
    ? Effect.orDie(source.requestContext.slot.whileWaiting(body))
    : body

const errorOfBody = (
  body: Buffer,
  headers: Headers.Headers
): InvalidRequest | PayloadTooLarge | UnsupportedMediaType | undefined => {
  if (body.length > maxBodyBytes) return payloadTooLarge
  if (body.length === 0) return undefined
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings are case-insensitive (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return unsupportedMediaType
  }
  const expected = isUtf8(body) ? expectedOf(body.toString()) : "valid UTF-8"
  return expected === undefined
    ? undefined
    : new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })
}

/** Returns what was expected of a text that not all parsers understand alike, or `undefined` for a valid one. */
const expectedOf = (text: string): string | undefined => {
  // `Buffer` keeps a byte order mark, and no JSON text begins with one (RFC 8259 §8.1).
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
