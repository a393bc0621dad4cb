import { Effect } from "effect"
import type { Server } from "node:http"
import { Settings } from "../config/Settings.ts"
import { peerNetwork, type TrustedProxies } from "../rate-limit/ClientAddress.ts"

/** Limits open connections, in total and per client address. Trusted proxies count only towards the total. */
export const attach = Effect.fnUntraced(function*(server: Server, trustedProxies: TrustedProxies) {
  const maxPerAddress = yield* Settings.maxConnectionsPerAddress.config
  server.maxConnections = yield* Settings.maxConnections.config
  const connections = new Map<string, number>()
  const change = (network: string, by: 1 | -1): number => {
    const open = (connections.get(network) ?? 0) + by
    if (open === 0) connections.delete(network)
    else connections.set(network, open)
    return open
  }
  server.on("connection", (socket) => {
    // A connection that the client has already reset has no address, so no limit per address could apply.
    if (socket.remoteAddress === undefined) socket.destroy()
    const network = peerNetwork(trustedProxies, socket.remoteAddress ?? "")
    if (network === undefined) return
    socket.on("close", () => change(network, -1))
    if (change(network, 1) > maxPerAddress) socket.destroy()
  })
})
