/** Turns the faults that `node-server/` finds in requests and bodies into errors of the API. */
import * as Errors from "../api/Errors.ts"
import { faultOf, type ParserFault } from "../node-server/ParserFaults.ts"

const malformed = (fault: string) =>
  new Errors.InvalidRequest({ message: `Invalid request: malformed HTTP (${fault}).` })

export const errorOf = (fault: ParserFault): Errors.ApiError => {
  switch (fault._tag) {
    case "MethodNotAllowed":
      return new Errors.MethodNotAllowed({ message: `${fault.method} is not allowed here.` })
    case "HeadTooLarge":
      return new Errors.HeaderFieldsTooLarge()
    case "BodyTooLarge":
      return new Errors.PayloadTooLarge()
    case "TooManyChunks":
      return new Errors.PayloadTooLarge({ message: "The body came in over 4,096 chunks or packets. Send larger ones." })
    case "ChunkExtensionTooLarge":
      return new Errors.PayloadTooLarge({ message: "A chunk extension is over 16 KiB. Send no chunk extensions." })
    case "TooSlow":
      return new Errors.RequestTimeout()
    case "VersionNotSupported":
      return new Errors.HttpVersionNotSupported()
  }
  return malformed(fault.fault)
}

/** Returns the error of the API for a body that could not be read because of `error`. */
export const bodyErrorOf = (error: unknown): Errors.InvalidRequest | Errors.PayloadTooLarge | Errors.RequestTimeout => {
  const mapped = errorOf(faultOf(error))
  const isOfBody = mapped instanceof Errors.InvalidRequest || mapped instanceof Errors.PayloadTooLarge ||
    mapped instanceof Errors.RequestTimeout
  return isOfBody ? mapped : malformed("the body")
}
