/** The client's address: the peer, or the one that trusted proxies name in `X-Forwarded-For`. */
import { Effect, identity, Option, Result } from "effect"
import { HttpMiddleware } from "effect/http"
import { IpNetwork, NetAddress } from "effect/net"
import { trustedProxies } from "../config/Setting.ts"
import type { RequestHead } from "./RequestHead.ts"

/** Parses an address without its zone. An IPv4 address inside IPv6 is that IPv4 address. */
const parse = (text: string): NetAddress.IpAddress | undefined =>
  NetAddress.ipFromString(text.replace(/%.*$/, "")).pipe(
    Result.map((address) => NetAddress.toCanonical(address)),
    Result.getOrUndefined
  )

/** Returns an IPv4 address, or the /64 of an IPv6 address: the smallest network that one client gets. */
const networkOf = (address: NetAddress.IpAddress): string =>
  NetAddress.isIpv4Address(address)
    ? NetAddress.formatIp(address)
    : `${NetAddress.ipv6ToSegments(address).slice(0, 4).map((segment) => segment.toString(16)).join(":")}::/64`

const ofRequest = ({ remoteAddress }: RequestHead): NetAddress.IpAddress | undefined =>
  parse(Option.getOrElse(remoteAddress, () => ""))

/** Returns the network of a request's client, which unauthenticated requests are charged to, or `"unknown"`. */
export const clientNetwork = (request: RequestHead): string => {
  const address = ofRequest(request)
  return address === undefined ? "unknown" : networkOf(address)
}

/** Returns the address of a request's client, for the audit log, or `"unknown"`. */
export const clientAddress = (request: RequestHead): string => {
  const address = ofRequest(request)
  return address === undefined ? "unknown" : NetAddress.formatIp(address)
}

/**
 * The middleware that sets a request's `remoteAddress` to its client's. It reads `X-Forwarded-For` from the right, as
 * far as trusted proxies added the entries: a client can forge all entries before them.
 */
export const makeForwarded = Effect.map(
  trustedProxies.config,
  (proxies) => proxies.length === 0 ? identity : HttpMiddleware.xForwardedHeaders({ trustedProxies: proxies })
)

/** Returns the network of a peer, or `undefined` for a trusted proxy, which opens connections for many clients. */
export const makePeerNetwork = Effect.map(trustedProxies.config, (proxies) => (peer: string): string | undefined => {
  const address = parse(peer)
  return address === undefined || proxies.some((network) => IpNetwork.contains(network, address))
    ? undefined
    : networkOf(address)
})
