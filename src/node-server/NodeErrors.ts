import { Predicate } from "effect"
import * as Errors from "../api/Errors.ts"

const latin1 = new TextDecoder("latin1")

/** Finds the unknown method in the packet that Node rejected. `bytesParsed` may point into the middle of the method. */
const unknownMethod = (fault: unknown): string | undefined => {
  if (!Predicate.hasProperty(fault, "rawPacket") || !Predicate.hasProperty(fault, "bytesParsed")) return undefined
  const bytes = fault.rawPacket instanceof Uint8Array ? latin1.decode(fault.rawPacket) : ""
  const at = Number(fault.bytesParsed)
  const [start = ""] = /[A-Z]*$/.exec(bytes.slice(Math.max(0, at - 20), at)) ?? []
  return /^([A-Z]{1,20}) \S+ HTTP\/1\.[01]\r\n/.exec(start + bytes.slice(at))?.[1]
}

export const bodyErrorOf = (fault: unknown): Errors.InvalidRequest | Errors.PayloadTooLarge | Errors.RequestTimeout => {
  const error = errorOfParser(fault)
  const isOfBody = error instanceof Errors.InvalidRequest || error instanceof Errors.PayloadTooLarge ||
    error instanceof Errors.RequestTimeout
  return isOfBody ? error : malformed(faultOf(undefined))
}

const malformed = (fault: string) =>
  new Errors.InvalidRequest({ message: `Invalid request: malformed HTTP (${fault}).` })

/** The faults that Node's parser names by a reason of its own, and what the request must have instead. */
const reasons: ReadonlyArray<readonly [reason: RegExp, fault: string]> = [
  [/^(?:Expected CRLF|Missing expected (?:CR|LF)) /, "each line must end with CR and LF"],
  [/^Duplicate Content-Length$/, "more than one Content-Length"],
  [/^(?:Content-Length|Transfer-Encoding) can't be present with /, "both Content-Length and Transfer-Encoding"],
  [
    /^Unexpected (?:whitespace after header value|space after start line)$/,
    "a header must not continue on the next line"
  ]
]

const faultOf = (reason: unknown): string =>
  reasons.find(([pattern]) => pattern.test(String(reason)))?.[1] ?? "method, URL encoding or a header"

export const errorOfParser = (fault: unknown): Errors.ApiError => {
  switch (Predicate.hasProperty(fault, "code") ? fault.code : undefined) {
    case "HPE_INVALID_METHOD": {
      const method = unknownMethod(fault)
      if (method === undefined) break
      return new Errors.MethodNotAllowed({ message: `${method} is not allowed here.` })
    }
    case "HPE_HEADER_OVERFLOW":
      return new Errors.HeaderFieldsTooLarge()
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new Errors.PayloadTooLarge({ message: "A chunk extension is over 16 KiB. Send no chunk extensions." })
    case "ERR_BODY_TOO_LARGE":
      return new Errors.PayloadTooLarge()
    case "ERR_TOO_MANY_CHUNKS":
      return new Errors.PayloadTooLarge({ message: "The body came in over 4,096 chunks or packets. Send larger ones." })
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Errors.RequestTimeout()
    case "HPE_PAUSED_H2_UPGRADE":
      return new Errors.HttpVersionNotSupported()
    case "HPE_INVALID_VERSION":
      // `HPE_INVALID_VERSION` stands for unsupported HTTP versions (505) and for malformed HTTP versions, such as
      // `HTTP/1.x` (400). Only unsupported versions have the reason `Invalid HTTP version`.
      if (Predicate.hasProperty(fault, "reason") && fault.reason === "Invalid HTTP version") {
        return new Errors.HttpVersionNotSupported()
      }
  }
  return malformed(faultOf(Predicate.hasProperty(fault, "reason") ? fault.reason : undefined))
}

/** Finds `Origin` in the raw bytes, for the CORS headers. Node does not pass on the headers of a rejected request. */
export const originOf = (fault: object): { readonly origin?: string } => {
  const bytes = Predicate.hasProperty(fault, "rawPacket") && fault.rawPacket instanceof Uint8Array
    ? latin1.decode(fault.rawPacket)
    : ""
  const [, origin] = /^origin: *([!-~]{1,1000})\r?$/im.exec(bytes) ?? []
  return origin === undefined ? {} : { origin }
}
