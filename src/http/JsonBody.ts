/** Checks of request bodies: plain JSON text of a bounded size, which all parsers read alike. */
import { ByteSize, Effect } from "effect"
import type { Headers, HttpServerRequest } from "effect/http"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../api/Errors.ts"

/** The maximum size of a body in bytes. */
const maxBodyBytes = 65_536
/** The same maximum, in the form of Effect's `MaxBodySize`. */
export const maxSize = ByteSize.bytes(maxBodyBytes)

/** The maximum of nested levels. Some parsers use stack space for each. */
const maxLevels = 1_000

/**
 * The media type of JSON in UTF-8. Its parameters may be empty (RFC 9110 §5.6.6). Each space can match in only one way,
 * so that a long header takes linear time.
 */
const json = /^application\/json\s*(?:;\s*(?:charset="?utf-8"?\s*)?)*$/i

type BodyError = InvalidRequest | PayloadTooLarge | UnsupportedMediaType

/** Reads the body of a request, and fails if it is not one that the service accepts. */
export const check = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, BodyError> =>
  // A body that declares more than the maximum is rejected before it arrives.
  Number(request.headers["content-length"]) > maxBodyBytes
    ? Effect.fail(new PayloadTooLarge())
    : Effect.flatMap(Effect.orDie(request.arrayBuffer), (bytes) => {
      const error = errorOf(bytes, request.headers)
      return error === undefined ? Effect.void : Effect.fail(error)
    })

// A decoder that replaces invalid bytes would store other text than the client sent.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const errorOf = (bytes: ArrayBuffer, headers: Headers.Headers): BodyError | undefined => {
  if (bytes.byteLength > maxBodyBytes) return new PayloadTooLarge()
  if (bytes.byteLength === 0) return undefined
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings are case-insensitive (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return new UnsupportedMediaType()
  }
  const expected = expectedOf(bytes)
  return expected === undefined
    ? undefined
    : new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })
}

/** Returns what was expected of a text that not all parsers understand alike, or `undefined` for a valid one. */
const expectedOf = (bytes: ArrayBuffer): string | undefined => {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return "valid UTF-8"
  }
  // No JSON text begins with one (RFC 8259 §8.1).
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    // A text that serializes to itself has no duplicate name. Most bodies need no further check.
    const value: unknown = JSON.parse(text)
    const isShort = text.length <= maxLevels && !text.includes("__proto__")
    if (isShort && JSON.stringify(value) === text) return undefined
  } catch {
    return "valid JSON"
  }
  return expectedOfNames(text)
}

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
