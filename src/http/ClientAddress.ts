/** The client's address: the peer, or the one that trusted proxies name in `X-Forwarded-For`. */
import { identity, Option, Result } from "effect"
import { HttpMiddleware } from "effect/http"
import { IpNetwork, NetAddress } from "effect/net"
import type { RequestHead } from "./RequestHead.ts"

/** Parses an address without its zone. An IPv4-mapped IPv6 address becomes IPv4. */
const parse = (text: string): NetAddress.IpAddress | undefined =>
  NetAddress.ipFromString(text.replace(/%.*$/, "")).pipe(
    Result.map((address) => NetAddress.toCanonical(address)),
    Result.getOrUndefined
  )

/** A client usually gets a whole /64 of IPv6. */
const networkOf = (address: NetAddress.IpAddress): string =>
  NetAddress.isIpv4Address(address)
    ? NetAddress.formatIp(address)
    : `${NetAddress.ipv6ToSegments(address).slice(0, 4).map((segment) => segment.toString(16)).join(":")}::/64`

const ofRequest = ({ remoteAddress }: RequestHead): NetAddress.IpAddress | undefined =>
  parse(Option.getOrElse(remoteAddress, () => ""))

export const clientNetwork = (request: RequestHead): string => {
  const address = ofRequest(request)
  return address === undefined ? "unknown" : networkOf(address)
}

export const clientAddress = (request: RequestHead): string => {
  const address = ofRequest(request)
  return address === undefined ? "unknown" : NetAddress.formatIp(address)
}

export type TrustedProxies = ReadonlyArray<IpNetwork.IpNetwork>

/**
 * Middleware that takes a request's `remoteAddress` from `X-Forwarded-For`. It reads the header from the right, as far
 * as trusted proxies wrote it, because a client can forge the rest.
 */
export const forwarded = (trustedProxies: TrustedProxies) =>
  trustedProxies.length === 0 ? identity : HttpMiddleware.xForwardedHeaders({ trustedProxies })

/** Returns `undefined` for a trusted proxy, whose connections are not limited. */
export const peerNetwork = (trustedProxies: TrustedProxies, peer: string): string | undefined => {
  const address = parse(peer)
  return address === undefined || trustedProxies.some((network) => IpNetwork.contains(network, address))
    ? undefined
    : networkOf(address)
}
