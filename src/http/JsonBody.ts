/** Checks of request bodies: plain JSON text of a bounded size, which all parsers read alike. */
import { ByteSize, Effect } from "effect"
import type { Headers, HttpServerRequest } from "effect/http"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../api/Errors.ts"
import { isNodeRequest, type NodeRequest } from "./Call.ts"
import { errorOfParser } from "./ErrorResponses.ts"

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

export type BodyError = InvalidRequest | PayloadTooLarge | UnsupportedMediaType

/**
 * Reads the body of a request, which `request.text` then returns. Fails if it is not one that the service accepts, and
 * dies if it does not arrive.
 */
export const read = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<void, BodyError> => {
  const { headers, source } = request
  // A body that declares more than the maximum is rejected before it arrives.
  if (Number(headers["content-length"]) > maxBodyBytes) return Effect.fail(new PayloadTooLarge())
  // Only Effect's reader sends the 100 that a client with `Expect` waits for.
  const bytes = isNodeRequest(source) && headers.expect === undefined
    ? readNode(source)
    : Effect.orDie(Effect.map(request.arrayBuffer, (buffer) => new Uint8Array(buffer)))
  return Effect.flatMap(bytes, (body) => {
    const text = textOf(body, headers)
    return typeof text !== "string"
      ? Effect.fail(text)
      : Effect.sync(() => void Object.defineProperty(request, "text", { value: Effect.succeed(text) }))
  })
}

/**
 * Reads a body from Node's request. Effect's own reader makes a fiber, a cache and the observers of a stream for each
 * request, which takes a sixth of a create (measured).
 */
const readNode = (source: NodeRequest): Effect.Effect<Uint8Array, PayloadTooLarge> =>
  Effect.callback((resume) => {
    const chunks: Array<Uint8Array> = []
    let size = 0
    const end = (result: Effect.Effect<Uint8Array, PayloadTooLarge>) => {
      stop()
      resume(result)
    }
    const onData = (chunk: Uint8Array) => {
      size += chunk.length
      if (size > maxBodyBytes) end(Effect.fail(new PayloadTooLarge()))
      else chunks.push(chunk)
    }
    const onEnd = () =>
      end(Effect.sync(() => chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : join(chunks, size)))
    const onError = (fault: unknown) => end(Effect.die(errorOfParser(fault)))
    const stop = () => {
      source.off("data", onData)
      source.off("end", onEnd)
      source.off("error", onError)
    }
    // The parser may have rejected the body already.
    if (source.errored !== null) {
      onError(source.errored)
      return Effect.void
    }
    source.on("end", onEnd)
    source.on("error", onError)
    source.on("data", onData)
    return Effect.sync(stop)
  })

const join = (chunks: ReadonlyArray<Uint8Array>, size: number): Uint8Array => {
  const joined = new Uint8Array(size)
  let offset = 0
  for (const chunk of chunks) {
    joined.set(chunk, offset)
    offset += chunk.length
  }
  return joined
}

// A decoder that replaces invalid bytes would store other text than the client sent.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Returns the text of a body, or the error for one that the service does not accept. */
const textOf = (bytes: Uint8Array, headers: Headers.Headers): string | BodyError => {
  if (bytes.byteLength > maxBodyBytes) return new PayloadTooLarge()
  // HttpApi itself responds to an empty body of another type.
  if (bytes.byteLength === 0) return ""
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings are case-insensitive (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return new UnsupportedMediaType()
  }
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return invalid("valid UTF-8")
  }
  const expected = expectedOf(text)
  return expected === undefined ? text : invalid(expected)
}

const invalid = (expected: string) => new InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })

/** Returns what was expected of a text that not all parsers understand alike, or `undefined` for a valid one. */
const expectedOf = (text: string): string | undefined => {
  // No JSON text begins with one (RFC 8259 §8.1).
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    // A text that serializes to itself has no duplicate name. Most bodies need no further check.
    const value: unknown = JSON.parse(text)
    // So short a text has no more levels.
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
