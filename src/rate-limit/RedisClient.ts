import calculateSlot from "@redis/client/dist/lib/utils/calculate-slot.js"
import { type Cause, Context, Effect, Layer, Redacted } from "effect"
import { isIP } from "node:net"
import { createClient, createCluster, createSentinel } from "redis"
import type { RedisUrl } from "../config/ConnectionUrls.ts"
import { Settings } from "../config/Settings.ts"
import type { Caller } from "./RateLimiter.ts"
import { type Command, keyOf, type Reply, runCommand } from "./RedisScript.ts"

/** Placeholder name for the only master (single server or Sentinel), or for a cluster master that is not known yet. */
export const unnamedServer = "Redis"

const maxCloseTime = "2 seconds"

export class RedisClient extends Context.Service<RedisClient, {
  onError(listener: (error: unknown) => void): void
  readonly connect: Effect.Effect<void, Cause.UnknownError>
  run(caller: Caller, command: Command): Promise<Reply>
  serverOf(caller: Caller): string
}>()("petstore/RedisClient") {
  static readonly layer = Layer.effect(
    RedisClient,
    Effect.gen(function*() {
      const { client, errors, serverOf } = open(yield* Settings.redisUrl.config, yield* Settings.redisTimeoutMs.config)
      let connecting: Promise<unknown> = Promise.resolve()
      const connect = (): Promise<unknown> => connecting = client.connect()
      const destroy = Effect.ignore(Effect.tryPromise(async () => client.destroy()))
      const connected = Effect.ignore(Effect.tryPromise(() => connecting))
      // `destroy` misses a connection that is still opening, so call it again when `connect` has settled.
      yield* Effect.addFinalizer(() => Effect.timeoutOption(Effect.all([destroy, connected, destroy]), maxCloseTime))
      return RedisClient.of({
        onError(listener) {
          for (const name of errors) client.on(name, (event) => listener(event instanceof Error ? event : event?.error))
        },
        connect: Effect.asVoid(Effect.tryPromise(connect)),
        run: (caller, command) => client.runCommand(caller, command),
        serverOf
      })
    })
  )
}

const optionsOf = ({ tls }: RedisUrl, { password, username }: RedisUrl["credentials"], timeoutMs: number) => ({
  ...username !== undefined && { username },
  ...password !== undefined && { password: Redacted.value(password) },
  disableOfflineQueue: true,
  commandsQueueMaxLength: 10_000,
  disableClientInfo: true,
  maintNotifications: "disabled" as const,
  // The library pings again only after a reply, so a half-open socket becomes idle, and `socketTimeout` closes it.
  pingInterval: 500,
  socket: {
    ...tls,
    ...tls !== undefined && { tls: true as const },
    connectTimeout: 1000 + timeoutMs,
    socketTimeout: 1000 + timeoutMs,
    reconnectStrategy: (retries: number) => Math.min(100 * 2 ** retries, 1000)
  }
})

const open = (url: RedisUrl, timeoutMs: number) => {
  const options = optionsOf(url, url.credentials, timeoutMs)
  // Turn off the library's timer per command. `RedisCircuitBreaker` checks all commands with one timer.
  const shared = { scripts: { runCommand }, commandOptions: { timeout: 0 } }
  if (url.kind === "sentinel") {
    const client = createSentinel({
      ...shared,
      name: url.masterName,
      sentinelRootNodes: url.addresses.map((address) => ({ ...address })),
      nodeClientOptions: { ...options, database: url.database },
      sentinelClientOptions: optionsOf(url, url.sentinelCredentials, timeoutMs)
    })
    return { client, errors: ["error", "client-error"], serverOf: () => unnamedServer }
  }
  if (url.kind === "cluster") {
    const client = createCluster({
      ...shared,
      rootNodes: url.addresses.map((address) => ({ socket: { ...address } })),
      defaults: options,
      // Connect to nodes lazily, so that the discovery succeeds while a node is down.
      minimizeConnections: true,
      topologyRefreshOnReconnectionAttemptStrategy: false
    })
    // Refresh the topology here, because the library's own refresh misses a master that was down at startup.
    // It is undocumented, so an `async` function: its throw must not end the process from the client's timer.
    const rediscover = async ({ host, port }: { readonly host: string; readonly port: number }) =>
      client._slots.rediscover(undefined, new Set([`${host}:${port}`]))
    client.on("node-reconnecting", (node) => void rediscover(node).catch(() => {}))
    const serverOf = (caller: Caller) => client.slots[slotOf(caller)]?.master.address ?? unnamedServer
    return { client, errors: ["error", "node-error"], serverOf }
  }
  const [address] = url.addresses
  const serverName = url.tls !== undefined && isIP(address.host) === 0 ? { servername: address.host } : {}
  const socket = { ...options.socket, ...address, ...serverName }
  const client = createClient({ ...shared, ...options, socket, database: url.database })
  return { client, errors: ["error"], serverOf: () => unnamedServer }
}

export const slotOf = (caller: Caller): number => calculateSlot.default(keyOf(caller))
