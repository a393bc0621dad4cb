/** Checks that a body is UTF-8 JSON within the size limit, without names that parsers could read differently. */
import { Effect } from "effect"
import type { Headers, HttpServerRequest } from "effect/http"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../api/Errors.ts"

/** The largest valid pet, with a name of 1,000 escaped surrogate pairs, takes 12 KB. */
export const maxBytes = 16_384

/** The maximum nesting of arrays and objects. Deeper JSON can overflow the stack of a recursive parser. */
const maxLevels = 1_000

export type BodyError = InvalidRequest | PayloadTooLarge | UnsupportedMediaType

/** Reads and checks the body, which HttpApi later reads from a cache. Dies if the body is truncated or too large. */
export const check = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, BodyError> => {
  const { headers } = request
  if (Number(headers["content-length"]) > maxBytes) return Effect.fail(new PayloadTooLarge())
  const part = unsupportedPart(headers)
  if (part !== undefined) return unsupported(part)
  return Effect.flatMap(Effect.orDie(request.arrayBuffer), (bytes): Effect.Effect<void, BodyError> => {
    if (bytes.byteLength === 0) return Effect.void
    if (headers["content-type"] === undefined) return unsupported("a body without Content-Type")
    const expected = expectedOf(bytes)
    return expected === undefined
      ? Effect.void
      : Effect.fail(new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` }))
  })
}

const unsupported = (part: string) =>
  Effect.fail(
    new UnsupportedMediaType({
      message: `Send the body as application/json, in UTF-8, not compressed. The service does not accept ${part}.`
    })
  )

const unsupportedPart = (headers: Headers.Headers): string | undefined => {
  const [type = "", ...parameters] = (headers["content-type"] ?? "application/json").split(";")
  if (type.trim().toLowerCase() !== "application/json") return `Content-Type: ${type.trim().slice(0, 100)}`
  // Allow `charset=utf-8`: clients send it, although JSON has no such parameter (RFC 8259 §11).
  const charset = parameters.map((parameter) => parameter.trim()).find((parameter) =>
    /^charset=/i.test(parameter) && !/^charset="?utf-?8"?$/i.test(parameter)
  )
  if (charset !== undefined) return charset.slice(0, 100)
  const { "content-encoding": encoding = "identity", "transfer-encoding": transfer = "chunked" } = headers
  if (encoding.toLowerCase() !== "identity") return `Content-Encoding: ${encoding.slice(0, 100)}`
  return transfer.toLowerCase() === "chunked" ? undefined : `Transfer-Encoding: ${transfer.slice(0, 100)}`
}

// Rejects invalid bytes instead of replacing them, so that the service stores exactly the text that the client sent.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const expectedOf = (bytes: ArrayBuffer): string | undefined => {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return "valid UTF-8"
  }
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    const value: unknown = JSON.parse(text)
    // Fast path for short texts, which cannot nest deeply: if `stringify(parse(text)) === text`, no name is duplicated.
    const isShort = text.length <= maxLevels && !text.includes("__proto__")
    if (isShort && JSON.stringify(value) === text) return undefined
  } catch (error) {
    return `valid JSON (${describeFault(text, String(error))})`
  }
  return expectedOfNames(text)
}

/** Returns the cause and the position in V8's message, without the part of the body that some messages quote. */
const describeFault = (text: string, message: string): string => {
  const [, unexpected] = /(Unexpected token '.'), /su.exec(message) ?? []
  if (unexpected !== undefined) return `${unexpected} at position ${findPosition(text)}`
  const [, cause = "Malformed", position = ""] =
    /: ([^"]*?)(?: in JSON| of JSON input)?( at position \d+|$)/.exec(message) ?? []
  return cause + position
}

/** Finds the position of an unexpected token by bisection, because V8's message for it has none. */
const findPosition = (text: string): number => {
  let [start, end] = [0, text.length]
  while (start < end) {
    const middle = (start + end + 1) >> 1
    if (hasUnexpectedToken(text.slice(0, middle))) end = middle - 1
    else start = middle
  }
  return start
}

const hasUnexpectedToken = (text: string): boolean => {
  try {
    JSON.parse(text)
    return false
  } catch (error) {
    return String(error).includes("Unexpected token")
  }
}

const token = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g

/** Rejects the name `__proto__`, deep nesting, and duplicate names, which parsers treat differently (RFC 8259 §4). */
const expectedOfNames = (text: string): string | undefined => {
  const objects: Array<Set<string> | undefined> = []
  let last = ""
  for (const [found] of text.matchAll(token)) {
    if (found === "{" || found === "[") {
      if (objects.push(found === "{" ? new Set() : undefined) > maxLevels) return "JSON nested at most 1,000 levels"
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
