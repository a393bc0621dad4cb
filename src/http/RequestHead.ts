/** Reads and checks the head of a request, and finds the address of its client. */
import { identity, Option, Predicate, Result } from "effect"
import { HttpMiddleware, type HttpServerRequest } from "effect/http"
import { IpNetwork, NetAddress } from "effect/net"
import * as Errors from "../api/Errors.ts"
import { missingPath, noSuchPath, type RoutesAt } from "./RoutePaths.ts"

type RawHeaders = Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/**
 * The part of a request that `PortHooks` use. If Node's parser rejects a request, at most the address of its peer and
 * `Origin` are known.
 */
export interface RequestHead {
  readonly method: string
  readonly url: string
  readonly headers: RawHeaders
  readonly remoteAddress: Option.Option<string>
  readonly source?: object
}

/** The members of Node's `IncomingMessage` that this file uses. In-process tests have no `IncomingMessage`. */
export interface NodeRequest {
  readonly headers: RawHeaders
  readonly rawHeaders: ReadonlyArray<string>
  readonly httpVersion: string
  readonly url: string
}

export const isNodeRequest = (source: unknown): source is NodeRequest => Predicate.hasProperty(source, "rawHeaders")

/** Hot path: reads the header from Node's request, because Effect copies all headers at the first access. */
export const headerOf = (head: RequestHead, name: string): string | undefined => {
  const value = (isNodeRequest(head.source) ? head.source.headers : head.headers)[name]
  return typeof value === "string" ? value : undefined
}

/** Returns the bearer token of a request (RFC 6750 §2.1). */
export const bearerOf = (head: RequestHead): string | undefined =>
  /^bearer +(\S.*)$/i.exec(headerOf(head, "authorization") ?? "")?.[1]

/**
 * Matches a quotation mark at the start, straight or curly, or a straight one at the end. Matches a curly one by its
 * UTF-8 bytes, because Node reads headers as Latin-1.
 */
const quoted = /^(?:["']|\xe2\x80[\x98-\x9d])|["']$/

const unexpandedVariable = /^(?:\$(?:env:)?\{?|%|\{\{)\s*(\w{1,64})\s*(?:\}|%|\}\})?$/i

/** Describes a common mistake in sending a credential, so that the client's developer does not look for a typo. */
export const confusionOf = (credential: string, noun: string): string | undefined => {
  if (quoted.test(credential)) return `The ${noun} is in quotation marks. Send it without them.`
  if (/^bearer\s/i.test(credential)) return "The Authorization header has Bearer twice. Send it once."
  const variable = unexpandedVariable.exec(credential)?.[1]
  return variable === undefined
    ? undefined
    : `The request has the name of the variable ${variable} instead of its value. In a shell, use double quotes.`
}

const unsupportedVersion = new Errors.HttpVersionNotSupported()
const invalid = (reason: string) => new Errors.InvalidRequest({ message: `Invalid request: ${reason}.` })
const faultyFraming = invalid("expected a Transfer-Encoding that ends with chunked, and none in HTTP/1.0")
const badHost = invalid("expected one valid Host header")
const badUrl = invalid("expected no # in the URL and no ; in its path (percent-encode them as %23 and %3B)")
const twoCredentials = invalid("header.authorization: expected one Authorization header")
const misdirected = new Errors.MisdirectedRequest()

export const headError = (
  { method, source, url }: HttpServerRequest.HttpServerRequest,
  { isAllowedHost, routesAt }: { readonly routesAt: RoutesAt; readonly isAllowedHost?: (name: string) => boolean }
): Errors.ApiError | undefined => {
  // Reject `#`, which no URL of a request may contain (RFC 9112 §3.2); `url` lacks it if it is absolute. Reject a path
  // with `;`, because the router would read the rest as the query.
  if (/^[^?]*;|#/.test(url) || isNodeRequest(source) && source.url.includes("#")) return badUrl
  const error = isNodeRequest(source) ? nodeHeadError(source, isAllowedHost) : undefined
  if (error !== undefined) return error
  // Reject `*` for methods other than OPTIONS, because the router would read it as the path `/`.
  if (url === "*" && method !== "OPTIONS") return noSuchPath(routesAt, url)
  // Reject a trailing slash, because the router would read it as an empty path parameter.
  return /^[^?]+\/(?:\?|$)/.test(url) ? missingPath(url, routesAt) : undefined
}

const nodeHeadError = (source: NodeRequest, isAllowedHost?: (name: string) => boolean): Errors.ApiError | undefined => {
  const { headers, httpVersion, rawHeaders } = source
  if (rawHeaders.length > 2 * Errors.requestLimits.headerFields) return new Errors.HeaderFieldsTooLarge()
  // Reject the HTTP versions 0.9 and 2.0, which Node's parser accepts.
  if (httpVersion !== "1.1" && httpVersion !== "1.0") return unsupportedVersion
  // Prevent request smuggling: with faulty framing, a proxy may see another end of the body (RFC 9112 §6.1, §6.3).
  const { "transfer-encoding": transfer } = headers
  if (transfer !== undefined && (httpVersion === "1.0" || !/(?:^|,)\s*chunked$/i.test(String(transfer)))) {
    return faultyFraming
  }
  const hosts = countOf(rawHeaders, "host")
  if (hosts === 0 ? httpVersion !== "1.0" : hosts > 1 || !validHost.test(String(headers.host))) return badHost
  // Reject a second `Authorization` header, because Node would silently ignore it.
  if (countOf(rawHeaders, "authorization") > 1) return twoCredentials
  const name = isAllowedHost === undefined ? undefined : hostOf(source)
  return name === undefined || isAllowedHost?.(name) === true ? undefined : misdirected
}

const validHost = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** Whether a request repeats a header such as `Content-Type`, of which Node keeps only the first. */
export const isRepeated = ({ source }: RequestHead, name: string): boolean =>
  isNodeRequest(source) && source.headers[name] !== undefined && countOf(source.rawHeaders, name) > 1

const countOf = (rawHeaders: ReadonlyArray<string>, name: string): number => {
  let count = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const found = rawHeaders[i]
    if (found?.length === name.length && found.toLowerCase() === name) count++
  }
  return count
}

const normalize = (name: string): string => name.toLowerCase().replace(/\.$/, "")

/** Returns the host of an absolute URL, or else of the `Host` header (RFC 9112 §3.2.2). */
const hostOf = ({ headers, url }: NodeRequest): string | undefined => {
  const [, authority = headers.host?.toString()] = /^[a-z][a-z\d+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url) ?? []
  return authority && normalize(authority.replace(/:\d*$/, ""))
}

/**
 * Returns a predicate that allows IP addresses, `localhost` and `names` as the host of a request. This prevents DNS
 * rebinding: a web page points its own domain to this machine, so that the browser sends requests with that host.
 */
export const isAllowedAmong = (names: Iterable<string>) => {
  const allowed = new Set(["localhost", ...Array.from(names, normalize)])
  return (name: string): boolean =>
    allowed.has(name) || Result.isSuccess(NetAddress.ipFromString(name.replace(/^\[(.+)\]$/, "$1")))
}

/** RFC 9110 §10.1.1 defines only the value `100-continue` for `Expect`. */
export const hasUnknownExpectation = (head: RequestHead): boolean =>
  (headerOf(head, "expect") ?? "100-continue").toLowerCase() !== "100-continue"

type Peer = Pick<HttpServerRequest.HttpServerRequest, "remoteAddress">

/** Parses an IP address. Drops the zone of an IPv6 address (`%eth0`), and converts IPv4-mapped IPv6 to IPv4. */
const parseAddress = (text: string): NetAddress.IpAddress | undefined =>
  NetAddress.ipFromString(text.replace(/%.*$/, "")).pipe(
    Result.map((address) => NetAddress.toCanonical(address)),
    Result.getOrUndefined
  )

/** Returns an IPv4 address, or the /64 of an IPv6 address: providers usually assign a whole /64 to one client. */
const networkOf = (address: NetAddress.IpAddress): string =>
  NetAddress.isIpv4Address(address)
    ? NetAddress.formatIp(address)
    : `${NetAddress.ipv6ToSegments(address).slice(0, 4).map((segment) => segment.toString(16)).join(":")}::/64`

const addressAs = (format: (address: NetAddress.IpAddress) => string) => ({ remoteAddress }: Peer): string => {
  const address = parseAddress(Option.getOrElse(remoteAddress, () => ""))
  return address === undefined ? "unknown" : format(address)
}

export const clientNetwork = addressAs(networkOf)

export const clientAddress = addressAs(NetAddress.formatIp)

export type TrustedProxies = ReadonlyArray<IpNetwork.IpNetwork>

/**
 * For requests from trusted proxies, sets `remoteAddress` to the last address in `X-Forwarded-For` that is not a
 * trusted proxy. Clients can forge all earlier addresses. If all addresses are trusted proxies, uses the first one. If
 * the search from the right meets an entry that is no address, the request stays unchanged. Effect's middleware applies
 * `X-Forwarded-Host` and `X-Forwarded-Proto` too.
 */
export const applyForwardedFor = (trustedProxies: TrustedProxies) =>
  trustedProxies.length === 0 ? identity : HttpMiddleware.xForwardedHeaders({ trustedProxies })

/** Returns the network of a peer, or `undefined` for a trusted proxy and for a text that is no address. */
export const peerNetwork = (trustedProxies: TrustedProxies, peer: string): string | undefined => {
  const address = parseAddress(peer)
  return address === undefined || trustedProxies.some((network) => IpNetwork.contains(network, address))
    ? undefined
    : networkOf(address)
}
