/** Checks of a request's head that the API port and the management port make before any handler runs. */
import type { IncomingMessage } from "node:http"
import * as Errors from "../../api/Errors.ts"
import { hasOneHost } from "./HostHeader.ts"

const unsupportedVersion = new Errors.HttpVersionNotSupported()
const faultyFraming = new Errors.InvalidRequest({
  message: "Invalid request: expected no Transfer-Encoding in HTTP/1.0."
})
const badHost = new Errors.InvalidRequest({ message: "Invalid request: expected one valid Host header." })
const misdirected = new Errors.MisdirectedRequest()

/** Returns the error for a head that an HTTP/1.1 server must reject, or `undefined`. */
export const headError = (
  request: IncomingMessage,
  isAllowedHost: (request: IncomingMessage) => boolean
): Errors.ApiError | undefined => {
  // Node's parser also accepts 0.9 and 2.0.
  if (request.httpVersion !== "1.1" && request.httpVersion !== "1.0") return unsupportedVersion
  // A proxy that knows only HTTP/1.0 finds another end of such a request: the rest may be smuggled (RFC 9112 §6.1).
  if (request.httpVersion === "1.0" && request.headers["transfer-encoding"] !== undefined) return faultyFraming
  if (!hasOneHost(request)) return badHost
  return isAllowedHost(request) ? undefined : misdirected
}
