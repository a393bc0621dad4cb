/** Whom a request says that it is for. */
import type { IncomingMessage } from "node:http"

const host = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** Whether a request has one valid `Host`; of HTTP/1.0 none will do (RFC 9112 §3.2). */
export const hasOneHost = ({ headers: { host: given }, httpVersion, rawHeaders }: IncomingMessage): boolean => {
  if (given === undefined) return httpVersion === "1.0"
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (isHost(rawHeaders[i])) hosts++
  return hosts === 1 && host.test(given)
}

const isHost = (name = ""): boolean => name.length === 4 && name.toLowerCase() === "host"
