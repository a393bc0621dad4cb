/** What the body of a request may be: JSON text of a bounded size. */
import { ByteSize, Effect } from "effect"
import type { Headers, HttpServerRequest } from "effect/http"
import { isUtf8 } from "node:buffer"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../../api/Errors.ts"
import { FastRequest } from "../fast-path/FastRequest.ts"
import { IncomingRequest } from "../node/IncomingRequest.ts"

/** The largest body that is read. */
export const maxBodyBytes = 65_536
export const maxSize = ByteSize.bytes(maxBodyBytes)

/** What a body that the service does not take is refused with. */
export const payloadTooLarge = new PayloadTooLarge()
export const unsupportedMediaType = new UnsupportedMediaType()

/**
 * Parameters may be empty (RFC 9110 §5.6.6). Each space can be matched in one way only, or a long header would take for
 * ever.
 */
const json = /^application\/json\s*(?:;\s*(?:charset="?utf-8"?\s*)?)*$/i

/** Refuses what is not plain JSON text. Bytes that are no UTF-8 would be kept as something else than was sent. */
export const rejectOtherThanJson = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<void, InvalidRequest | PayloadTooLarge | UnsupportedMediaType> =>
  // What says that it is too large is not waited for.
  Number(request.headers["content-length"]) > maxBodyBytes
    ? Effect.fail(payloadTooLarge)
    : Effect.flatMap(
      withoutSlot(request, Effect.orDie(bytesOf(request))),
      (bytes): Effect.Effect<void, InvalidRequest | PayloadTooLarge | UnsupportedMediaType> =>
        refusal(bytes, request.headers) ?? Effect.void
    )

const bytesOf = (request: HttpServerRequest.HttpServerRequest) =>
  request instanceof FastRequest ? request.body : Effect.map(request.arrayBuffer, (bytes) => Buffer.from(bytes))

/** A request does not occupy its slot while its body is arriving. */
const withoutSlot = <A>({ source }: HttpServerRequest.HttpServerRequest, body: Effect.Effect<A>): Effect.Effect<A> =>
  source instanceof IncomingRequest && source.requestContext !== undefined && !source.complete
    ? Effect.orDie(source.requestContext.slot.whileWaiting(body))
    : body

const refusal = (
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
  // Names of codings have no case (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return unsupportedMediaType
  }
  const expected = isUtf8(body) ? expectedOf(body.toString()) : "valid UTF-8"
  return expected === undefined
    ? undefined
    : new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })
}

/** What was expected of a text that is none that all parsers understand alike. */
const expectedOf = (text: string): string | undefined => {
  // `Buffer` keeps it, and no JSON begins with it (RFC 8259 §8.1).
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    // A text that is written again as it is has no name twice. Most bodies are, and need no further look.
    if (isShort(text) && JSON.stringify(JSON.parse(text)) === text) return undefined
    JSON.parse(text)
  } catch {
    return "valid JSON"
  }
  return expectedOfNames(text)
}

/** Whether a text is too short for too many levels, and has no `__proto__`. */
const isShort = (text: string): boolean => text.length <= mostLevels && !text.includes("__proto__")

/** Some parsers take a place on the stack for each. */
const mostLevels = 1_000

const token = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g

/**
 * What was expected of a JSON text in which an object has a name twice, which parsers understand in different ways (RFC
 * 8259 §4), or the name `__proto__`, by which some are attacked, or in which values are nested too deep.
 */
const expectedOfNames = (text: string): string | undefined => {
  const objects: Array<Set<string> | undefined> = []
  let last = ""
  for (const [found] of text.matchAll(token)) {
    if (found === "{" || found === "[") {
      if (objects.push(found === "{" ? new Set() : undefined) > mostLevels) return "JSON of at most 1,000 levels"
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
