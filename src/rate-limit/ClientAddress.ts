import { identity, Option, Result } from "effect"
import { HttpMiddleware, type HttpServerRequest } from "effect/http"
import { IpNetwork, NetAddress } from "effect/net"

type Peer = Pick<HttpServerRequest.HttpServerRequest, "remoteAddress">

/** Parses an IP address. Drops the zone of an IPv6 address (`%eth0`), and converts IPv4-mapped IPv6 to IPv4. */
const parse = (text: string): NetAddress.IpAddress | undefined =>
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
  const address = parse(Option.getOrElse(remoteAddress, () => ""))
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
  const address = parse(peer)
  return address === undefined || trustedProxies.some((network) => IpNetwork.contains(network, address))
    ? undefined
    : networkOf(address)
}
