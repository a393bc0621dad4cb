import { Effect, Layer, Result } from "effect"
import { type Headers, HttpServerRequest } from "effect/http"
import * as Errors from "../api/Errors.ts"
import { RequestBody } from "../api/OperationMiddleware.ts"
import { type BodySource, isBodySource } from "../node-server/BodyState.ts"
import { bodyErrorOf } from "./ParserErrors.ts"
import { hasUnknownExpectation } from "./RequestHead.ts"

/** The maximum nesting of arrays and objects. Deeper JSON could overflow the stack of a recursive parser. */
const maxLevels = 1_000

const unsupported = (part: string) =>
  new Errors.UnsupportedMediaType({
    message: `Send the body as application/json, in UTF-8, not compressed. The service does not accept ${part}.`
  })

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

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decode = (bytes: Uint8Array): string | undefined => {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

const expectedOf = (text: string): string | undefined => {
  if (text.startsWith("\ufeff")) return "no byte order mark"
  try {
    const value: unknown = JSON.parse(text)
    // Fast path: if `stringify(parse(text)) === text`, no name is duplicated. A text of at most `maxLevels` characters
    // cannot nest deeper than `maxLevels`.
    const isShort = text.length <= maxLevels && !text.includes("__proto__")
    if (isShort && JSON.stringify(value) === text) return undefined
  } catch (error) {
    return `valid JSON (${describeFault(String(error), text)})`
  }
  return expectedOfNames(text)
}

const unexpected = /Unexpected token '.'/su

/** Returns only the fault's cause and position, because the rest of V8's message can quote more of the body. */
const describeFault = (message: string, text: string): string => {
  const [found] = unexpected.exec(message) ?? []
  if (found !== undefined) return `${found} at position ${positionOfUnexpected(text, 0, text.length)}`
  const [, cause = "malformed", position = ""] =
    /: ([^"]*?)(?: (?:in|of) JSON.*?)?( at position \d+|$)/.exec(message) ?? []
  return cause + position
}

/** Finds the unexpected token by bisecting the text, because V8's message for that fault has no position. */
const positionOfUnexpected = (text: string, start: number, end: number): number => {
  if (end - start < 2) return start
  const middle = (start + end) >> 1
  const part = Result.try(() => JSON.parse(text.slice(0, middle)))
  return Result.isFailure(part) && unexpected.test(String(part.failure))
    ? positionOfUnexpected(text, start, middle)
    : positionOfUnexpected(text, middle, end)
}

const token = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g

/** Finds the name `__proto__`, deep nesting, and duplicate names, which parsers treat differently (RFC 8259 §4). */
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

/**
 * Reads the body from `node-server/`. Hot path: `HttpServerRequest.arrayBuffer` would take 20 µs of a create for a
 * cache, a stream and a fiber (docs/performance.md).
 */
const readSource = (source: BodySource) =>
  Effect.callback<Uint8Array, ReturnType<typeof bodyErrorOf>>((resume) =>
    source.whenRead((body) =>
      resume(body._tag === "Whole" ? Effect.succeed(body.bytes) : Effect.fail(bodyErrorOf(body.fault)))
    )
  )

const read = (request: HttpServerRequest.HttpServerRequest) =>
  isBodySource(request.source)
    ? readSource(request.source)
    : Effect.mapBoth(request.arrayBuffer, {
      onFailure: ({ reason }) =>
        reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
          ? new Errors.PayloadTooLarge()
          : bodyErrorOf(reason.cause),
      onSuccess: (bytes) => new Uint8Array(bytes)
    })

type BodyError = Effect.Error<ReturnType<typeof read>> | Errors.ExpectationFailed | Errors.UnsupportedMediaType

const check = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, BodyError> => {
  const { headers } = request
  if (hasUnknownExpectation(request)) return new Errors.ExpectationFailed()
  if (Number(headers["content-length"]) > Errors.requestLimits.bodyBytes) return new Errors.PayloadTooLarge()
  const part = unsupportedPart(headers)
  if (part !== undefined) return unsupported(part)
  return Effect.flatMap(read(request), (bytes): Effect.Effect<void, BodyError> => {
    if (bytes.length > 0 && headers["content-type"] === undefined) return unsupported("a body without Content-Type")
    const text = decode(bytes)
    const expected = text === undefined ? "valid UTF-8" : text === "" ? undefined : expectedOf(text)
    if (expected !== undefined) {
      return new Errors.InvalidRequest({ message: `Invalid request: body: expected ${expected}.` })
    }
    // HttpApi decodes the body from `request.text`, so replace that property by the text that is already read and
    // checked. Do not derive a request by `Object.create(request, …)`: V8 is slow with objects that become a prototype.
    Object.defineProperty(request, "text", { value: Effect.succeed(text) })
    return Effect.void
  })
}

export const layer = Layer.succeed(
  RequestBody,
  (httpEffect) => Effect.andThen(HttpServerRequest.HttpServerRequest.use(check), httpEffect)
)
