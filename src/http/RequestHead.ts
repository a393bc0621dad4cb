/** Checks the head of a request before the router: its HTTP version, its target and its host. */
import { type Option, Predicate, Result } from "effect"
import type { HttpServerRequest } from "effect/http"
import { NetAddress } from "effect/net"
import * as Errors from "../api/Errors.ts"
import type { RoutesAt } from "./RoutePaths.ts"

type RawHeaders = Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/** An `HttpServerRequest`, or what is known of a request that Node's parser rejects. */
export interface RequestHead {
  readonly method: string
  readonly url: string
  readonly headers: RawHeaders
  readonly remoteAddress: Option.Option<string>
  readonly source?: object
}

/** Tests in memory have no such source. */
interface NodeRequest {
  readonly headers: RawHeaders
  readonly rawHeaders: ReadonlyArray<string>
  readonly httpVersion: string
  readonly url: string
}

const isNodeRequest = (source: unknown): source is NodeRequest => Predicate.hasProperty(source, "rawHeaders")

/** Returns a header. Effect copies all headers when one is read first: a microsecond, 3 % of a list. */
export const headerOf = (head: RequestHead, name: string): string | undefined => {
  const value = (isNodeRequest(head.source) ? head.source.headers : head.headers)[name]
  return typeof value === "string" ? value : undefined
}

const unsupportedVersion = new Errors.HttpVersionNotSupported()
const faultyFraming = new Errors.InvalidRequest({
  message: "Invalid request: expected no Transfer-Encoding in HTTP/1.0."
})
const badHost = new Errors.InvalidRequest({ message: "Invalid request: expected one valid Host header." })
const badPath = new Errors.InvalidRequest({ message: "Invalid request: path: expected no ; and no #." })
const twoCredentials = new Errors.InvalidRequest({
  message: "Invalid request: header.authorization: expected one Authorization header."
})
const noSuchPath = new Errors.NotFound({
  message: "No such path. Paths are case-sensitive and begin with /v1."
})
const misdirected = new Errors.MisdirectedRequest()

/** Suggests the path that the client may have meant. */
export const missingPath = (url: string, routesAt: RoutesAt): Errors.NotFound => {
  const [path = ""] = url.toLowerCase().split("?", 1)
  const similar = path.replace(/(?<!\/)\/+$/, "")
  return similar !== "" && routesAt(similar).methods.length > 0
    ? new Errors.NotFound({ message: `No such path. Use ${similar}.` })
    : noSuchPath
}

export const headError = (
  { method, source, url }: HttpServerRequest.HttpServerRequest,
  { isAllowedHost, routesAt }: { readonly routesAt: RoutesAt; readonly isAllowedHost?: (name: string) => boolean }
): Errors.ApiError | undefined => {
  // The router would end a path at `;` and `#`.
  if (/^[^?]*[;#]/.test(url)) return badPath
  // The router reads this target of OPTIONS as the path `/`.
  if (url === "*" && method !== "OPTIONS") return noSuchPath
  // The router takes the end of `/v1/pets/` for an empty id.
  if (/^[^?]+\/(?:\?|$)/.test(url)) return missingPath(url, routesAt)
  if (!isNodeRequest(source)) return undefined
  const { headers, httpVersion, rawHeaders } = source
  // Node's parser also accepts 0.9 and 2.0.
  if (httpVersion !== "1.1" && httpVersion !== "1.0") return unsupportedVersion
  // A proxy that knows only HTTP/1.0 finds another end of such a request: the rest may be smuggled (RFC 9112 §6.1).
  if (httpVersion === "1.0" && headers["transfer-encoding"] !== undefined) return faultyFraming
  const hosts = countOf(rawHeaders, "host")
  if (hosts === 0 ? httpVersion !== "1.0" : hosts > 1 || !validHost.test(String(headers.host))) return badHost
  // Node would use the first one.
  if (countOf(rawHeaders, "authorization") > 1) return twoCredentials
  const name = isAllowedHost === undefined ? undefined : hostOf(source)
  return name === undefined || isAllowedHost?.(name) === true ? undefined : misdirected
}

const validHost = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

/** `rawHeaders` alternates names and values. */
const countOf = (rawHeaders: ReadonlyArray<string>, name: string): number => {
  let count = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const found = rawHeaders[i]
    if (found?.length === name.length && found.toLowerCase() === name) count++
  }
  return count
}

/** `localhost.` is `localhost`. */
const normalize = (name: string): string => name.toLowerCase().replace(/\.$/, "")

/** A target in absolute form takes precedence over `Host` (RFC 9112 §3.2.2). */
const hostOf = ({ headers, url }: NodeRequest): string | undefined => {
  const [, authority = headers.host?.toString()] = /^[a-z][a-z\d+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url) ?? []
  return authority && normalize(authority.replace(/:\d*$/, ""))
}

/**
 * Allows IP addresses, `localhost` and `names`. It stops DNS rebinding: a page can point its own name to this machine,
 * but the browser then sends that name.
 */
export const isAllowedAmong = (names: Iterable<string>) => {
  const allowed = new Set(["localhost", ...Array.from(names, normalize)])
  return (name: string): boolean =>
    allowed.has(name) || Result.isSuccess(NetAddress.ipFromString(name.replace(/^\[(.+)\]$/, "$1")))
}
