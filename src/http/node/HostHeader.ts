/** Checks of the host that a request is for (RFC 9110 §7.2). */
import type { IncomingMessage } from "node:http"
import { isIPv4, isIPv6 } from "node:net"

const host = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** Whether a request has exactly one valid `Host`. A request of HTTP/1.0 may have none (RFC 9112 §3.2). */
export const hasOneHost = ({ headers: { host: given }, httpVersion, rawHeaders }: IncomingMessage): boolean => {
  if (given === undefined) return httpVersion === "1.0"
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (isHost(rawHeaders[i])) hosts++
  return hosts === 1 && host.test(given)
}

const isHost = (name = ""): boolean => name.length === 4 && name.toLowerCase() === "host"

/** Normalizes case and the dot of the DNS root: `localhost.` and `localhost` are the same host. */
const normalize = (name: string): string => name.toLowerCase().replace(/\.$/, "")

/**
 * Returns the host of a request without its port: from a target in absolute form, else from `Host` (RFC 9112 §3.2.2). A
 * request of HTTP/1.0 may have none.
 */
const hostOf = ({ headers, url = "" }: IncomingMessage): string | undefined => {
  const [, authority = headers.host] = /^[a-z][a-z\d+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url) ?? []
  return authority && normalize(authority.replace(/:\d*$/, ""))
}

const isIpLiteral = (name: string): boolean => isIPv4(name) || (/^\[.*\]$/.test(name) && isIPv6(name.slice(1, -1)))

/**
 * Returns a predicate: whether a request is for an IP address, for `localhost` or for one of `names`. A page of another
 * origin can point its DNS name to this machine (DNS rebinding), but the browser then sends that name.
 */
export const isAllowedAmong = (names: Iterable<string>) => {
  const allowed = new Set(["localhost", ...Array.from(names, normalize)])
  return (request: IncomingMessage): boolean => {
    const name = hostOf(request)
    return name === undefined || isIpLiteral(name) || allowed.has(name)
  }
}
