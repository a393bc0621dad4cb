/** Names the faults that Node's server and `BufferedRequest` report, so that no other folder knows their codes. */
import { Predicate } from "effect"

export type ParserFault =
  | { readonly _tag: "MethodNotAllowed"; readonly method: string }
  | { readonly _tag: "HeadTooLarge" }
  | { readonly _tag: "BodyTooLarge" }
  | { readonly _tag: "TooManyChunks" }
  | { readonly _tag: "ChunkExtensionTooLarge" }
  | { readonly _tag: "TooSlow" }
  | { readonly _tag: "VersionNotSupported" }
  /** `fault` says what is malformed. */
  | { readonly _tag: "Malformed"; readonly fault: string }

const latin1 = new TextDecoder("latin1")

/**
 * Finds the unknown method in the bytes that Node rejected. `bytesParsed` can point to any byte of the method, so
 * search backwards for the start of the request line.
 */
const unknownMethod = (error: unknown): string | undefined => {
  if (!Predicate.hasProperty(error, "rawPacket") || !Predicate.hasProperty(error, "bytesParsed")) return undefined
  const bytes = error.rawPacket instanceof Uint8Array ? latin1.decode(error.rawPacket) : ""
  const at = Number(error.bytesParsed)
  const [start = ""] = /[A-Z]*$/.exec(bytes.slice(Math.max(0, at - 20), at)) ?? []
  return /^([A-Z]{1,20}) \S+ HTTP\/1\.[01]\r\n/.exec(start + bytes.slice(at))?.[1]
}

/** Reasons of Node's parser, and how the response names the fault. */
const reasons: ReadonlyArray<readonly [reason: RegExp, fault: string]> = [
  [/^(?:Expected CRLF|Missing expected (?:CR|LF)) /, "each line must end with CR and LF"],
  [/^Duplicate Content-Length$/, "more than one Content-Length"],
  [/^(?:Content-Length|Transfer-Encoding) can't be present with /, "both Content-Length and Transfer-Encoding"],
  [
    /^Unexpected (?:whitespace after header value|space after start line)$/,
    "a header must not continue on the next line"
  ]
]

const malformed = (reason: unknown): ParserFault => ({
  _tag: "Malformed",
  fault: reasons.find(([pattern]) => pattern.test(String(reason)))?.[1] ?? "method, URL encoding or a header"
})

export const faultOf = (error: unknown): ParserFault => {
  const reason = Predicate.hasProperty(error, "reason") ? error.reason : undefined
  switch (Predicate.hasProperty(error, "code") ? error.code : undefined) {
    case "HPE_INVALID_METHOD": {
      const method = unknownMethod(error)
      return method === undefined ? malformed(reason) : { _tag: "MethodNotAllowed", method }
    }
    case "HPE_HEADER_OVERFLOW":
      return { _tag: "HeadTooLarge" }
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return { _tag: "ChunkExtensionTooLarge" }
    case "ERR_BODY_TOO_LARGE":
      return { _tag: "BodyTooLarge" }
    case "ERR_TOO_MANY_CHUNKS":
      return { _tag: "TooManyChunks" }
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return { _tag: "TooSlow" }
    case "HPE_PAUSED_H2_UPGRADE":
      return { _tag: "VersionNotSupported" }
    case "HPE_INVALID_VERSION":
      // `HPE_INVALID_VERSION` stands for unsupported HTTP versions (505) and for malformed HTTP versions, such as
      // `HTTP/1.x` (400). Only unsupported versions have the reason `Invalid HTTP version`.
      if (reason === "Invalid HTTP version") return { _tag: "VersionNotSupported" }
  }
  return malformed(reason)
}

/** Finds `Origin` in the raw bytes, for the CORS headers: Node does not pass on the headers of a rejected request. */
export const originOf = (error: object): { readonly origin?: string } => {
  const bytes = Predicate.hasProperty(error, "rawPacket") && error.rawPacket instanceof Uint8Array
    ? latin1.decode(error.rawPacket)
    : ""
  const [, origin] = /^origin: *([!-~]{1,1000})\r?$/im.exec(bytes) ?? []
  return origin === undefined ? {} : { origin }
}
