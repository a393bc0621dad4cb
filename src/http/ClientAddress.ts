/** Whom a request without a valid key is charged to. */
import { Option, Result } from "effect"
import type { HttpServerRequest } from "effect/http"
import { NetAddress } from "effect/net"

/** The peer's IPv4 address, or the /64 network of its IPv6 address: the smallest that one client is given. */
export const clientNetwork = (request: HttpServerRequest.HttpServerRequest): string => {
  const peer = Option.getOrElse(request.remoteAddress, () => "unknown").replace(/^::ffff:(?=\d+\.)/, "")
  const address = Result.getOrUndefined(NetAddress.ipv6FromString(peer.replace(/%.*$/, "")))
  if (address === undefined) return peer
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4).map((segment) => segment.toString(16))
  return `${network.join(":")}::/64`
}
