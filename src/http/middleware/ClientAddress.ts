/** The client's address, which requests without a valid key are charged to. */
import { Effect, Option, Result } from "effect"
import type { HttpServerRequest } from "effect/http"
import { IpNetwork, NetAddress } from "effect/net"
import { trustedProxies } from "../../config/HttpSettings.ts"

const isTrustedProxy = Effect.map(
  trustedProxies.config,
  (proxies) => (address: NetAddress.IpAddress) => proxies.some((network) => IpNetwork.contains(network, address))
)

/** Parses an address, also with the port that some proxies append. An IPv4 address inside IPv6 is that IPv4 address. */
const parse = (text: string): NetAddress.IpAddress | undefined =>
  NetAddress.ipFromString(
    text.trim().replace(/^([\d.]+|\[.+\]):\d+$/, "$1").replace(/^\[(.+)\]$/, "$1").replace(/%.*$/, "")
  ).pipe(
    Result.map((address) => NetAddress.toCanonical(address)),
    Result.getOrUndefined
  )

/** Returns an IPv4 address, or the /64 of an IPv6 address: the smallest network that one client gets. */
const networkOf = (address: NetAddress.IpAddress): string =>
  NetAddress.isIpv4Address(address)
    ? NetAddress.formatIp(address)
    : `${NetAddress.ipv6ToSegments(address).slice(0, 4).map((segment) => segment.toString(16)).join(":")}::/64`

/**
 * Returns a function from the peer's address and `X-Forwarded-For` to the client's address, or `undefined` if it is
 * unknown. The client is the peer,
 * unless the peer is a trusted proxy. Then it is the last entry that no trusted proxy added: a client can forge all
 * entries before it.
 */
const makeClient = Effect.gen(function*() {
  const isTrusted = yield* isTrustedProxy
  return (peer: string, forwardedFor: string | undefined): NetAddress.IpAddress | undefined => {
    let client = parse(peer)
    if (client === undefined) return undefined
    const forwarded = forwardedFor?.split(",") ?? []
    while (isTrusted(client)) {
      const previous = parse(forwarded.pop() ?? "")
      if (previous === undefined) break
      client = previous
    }
    return client
  }
})

/** Returns a function from the peer's address and `X-Forwarded-For` to the client's network, or `"unknown"`. */
export const make = Effect.map(makeClient, (clientOf) => (peer: string, forwardedFor: string | undefined): string => {
  const client = clientOf(peer, forwardedFor)
  return client === undefined ? "unknown" : networkOf(client)
})

/** Returns a function from a request to the address of its client, for the audit log, or `"unknown"`. */
export const makeOfRequest = Effect.map(
  makeClient,
  (clientOf) => ({ headers, remoteAddress }: HttpServerRequest.HttpServerRequest): string => {
    const client = clientOf(Option.getOrElse(remoteAddress, () => ""), headers["x-forwarded-for"])
    return client === undefined ? "unknown" : NetAddress.formatIp(client)
  }
)

/** Returns the network of a peer, or `undefined` for a trusted proxy, which opens connections for many clients. */
export const peerNetwork = Effect.map(isTrustedProxy, (isTrusted) => (peer: string): string | undefined => {
  const address = parse(peer)
  return address === undefined || isTrusted(address) ? undefined : networkOf(address)
})
