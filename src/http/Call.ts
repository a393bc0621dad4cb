/**
 * The facts about one request: its head, the checks of it that precede the router, and what middleware finds out. The
 * headers of the response and the log line are made from them.
 */
import { Context, Function, type Option, Predicate, Result } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { HttpApiEndpoint } from "effect/http-api"
import { NetAddress } from "effect/net"
import * as Errors from "../api/Errors.ts"
import type { Decision } from "../rate-limit/Policy.ts"

/** A decision on a request that was charged to a key or, with `scope`, to the address of its client. */
export interface ChargedDecision extends Decision {
  readonly scope?: "address"
}

export class Call {
  /** The client's `X-Request-Id` if it is short and plain. Else a random UUID, which says nothing of other requests. */
  readonly requestId: string
  /** The time of arrival by the monotonic clock, in nanoseconds. */
  readonly startedAt: bigint
  /** The endpoint, once its middleware runs. Documents have none. */
  endpoint: HttpApiEndpoint.Top | undefined = undefined
  /** The id of the caller's API key, once it is verified. */
  keyId: string | undefined = undefined
  /** The rate-limit decision, once the request is charged. */
  decision: ChargedDecision | undefined = undefined
  /** Frees the slot of the operation, once it runs in one. */
  freeSlot: () => void = Function.constVoid

  constructor(sentId: unknown, startedAt: bigint) {
    this.requestId = typeof sentId === "string" && /^[\w.:-]{1,64}$/.test(sentId) ? sentId : crypto.randomUUID()
    this.startedAt = startedAt
  }
}

/** The call of the current request. */
export const CurrentCall = Context.Reference<Call>("petstore/http/Call", {
  defaultValue: () => {
    throw new Error("There is no call outside of a request")
  }
})

type RawHeaders = Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/** The parts of a request that its response depends on. `HttpServerRequest` has them all. */
export interface RequestHead {
  readonly method: string
  readonly url: string
  readonly headers: RawHeaders
  readonly remoteAddress: Option.Option<string>
  readonly source?: object
}

/** The request of Node's server, as far as the service reads it. Requests in memory are none. */
export interface NodeRequest {
  readonly headers: RawHeaders
  readonly rawHeaders: ReadonlyArray<string>
  readonly httpVersion: string
  readonly url: string
  readonly socket: object
  readonly errored: Error | null
  on(event: string, listener: (value: never) => void): void
  off(event: string, listener: (value: never) => void): void
}

export const isNodeRequest = (source: unknown): source is NodeRequest => Predicate.hasProperty(source, "rawHeaders")

/** Returns a header of a request. Effect copies Node's headers when they are first read, which takes a microsecond. */
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
export const noSuchPath = new Errors.NotFound({ message: "There is nothing at this path." })
const misdirected = new Errors.MisdirectedRequest()

/**
 * Returns the error for a head that HTTP/1.1 forbids, or that is for another host. The router would end a path at `;`
 * and `#`, so these are errors too.
 */
export const headError = (
  { method, source, url }: HttpServerRequest.HttpServerRequest,
  isAllowedHost?: (name: string) => boolean
): Errors.ApiError | undefined => {
  if (/^[^?]*[;#]/.test(url)) return badPath
  // The router reads this target of OPTIONS as the path `/`.
  if (url === "*" && method !== "OPTIONS") return noSuchPath
  if (!isNodeRequest(source)) return undefined
  const { headers, httpVersion, rawHeaders } = source
  // Node's parser also accepts 0.9 and 2.0.
  if (httpVersion !== "1.1" && httpVersion !== "1.0") return unsupportedVersion
  // A proxy that knows only HTTP/1.0 finds another end of such a request: the rest may be smuggled (RFC 9112 §6.1).
  if (httpVersion === "1.0" && headers["transfer-encoding"] !== undefined) return faultyFraming
  if (headers.host === undefined ? httpVersion !== "1.0" : !isOneHost(headers.host, rawHeaders)) return badHost
  const name = isAllowedHost === undefined ? undefined : hostOf(source)
  return name === undefined || isAllowedHost?.(name) === true ? undefined : misdirected
}

const validHost = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i

const isOneHost = (host: unknown, rawHeaders: ReadonlyArray<string>): boolean => {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]
    if (name?.length === 4 && name.toLowerCase() === "host") hosts++
  }
  return hosts === 1 && validHost.test(String(host))
}

/** Normalizes case and the dot of the DNS root: `localhost.` and `localhost` are the same host. */
const normalize = (name: string): string => name.toLowerCase().replace(/\.$/, "")

/** Returns the host of a request without its port: of a target in absolute form, else of `Host` (RFC 9112 §3.2.2). */
const hostOf = ({ headers, url }: NodeRequest): string | undefined => {
  const [, authority = headers.host?.toString()] = /^[a-z][a-z\d+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(url) ?? []
  return authority && normalize(authority.replace(/:\d*$/, ""))
}

/**
 * Returns a predicate: whether a name is an IP address, `localhost` or one of `names`. A page of another origin can
 * point its DNS name to this machine (DNS rebinding), but the browser then sends that name.
 */
export const isAllowedAmong = (names: Iterable<string>) => {
  const allowed = new Set(["localhost", ...Array.from(names, normalize)])
  return (name: string): boolean =>
    allowed.has(name) || Result.isSuccess(NetAddress.ipFromString(name.replace(/^\[(.+)\]$/, "$1")))
}
