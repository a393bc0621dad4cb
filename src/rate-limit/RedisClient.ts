import calculateSlot from "@redis/client/dist/lib/utils/calculate-slot.js"
import { type Cause, Context, Duration, Effect, Layer, type Metric, Redacted } from "effect"
import { isIP } from "node:net"
import type { ConnectionOptions } from "node:tls"
import { createClient, createCluster, createSentinel } from "redis"
import { type Caller, isKey } from "./RateLimiter.ts"
import { type Command, type Reply, runCommand } from "./RedisScript.ts"

type Address = Readonly<{ host: string; port: number }>
type Credentials = Readonly<{ username?: string; password?: Redacted.Redacted }>

/**
 * A server, nodes of a cluster, or the sentinels of `masterName`. With Sentinel, `addresses` are those of the
 * sentinels, but `credentials` are those of the master.
 */
interface Servers {
  readonly kind: "server" | "sentinel" | "cluster"
  readonly addresses: readonly [Address, ...Array<Address>]
  readonly credentials: Credentials
  readonly database: number
  readonly masterName: string
  readonly sentinelCredentials: Credentials
  readonly tls: ConnectionOptions | undefined
}

export interface RedisOptions {
  readonly url: Servers
  /**
   * How long a request waits for a reply. After this time, the process counts the callers of that server on its own
   * until the server replies again.
   */
  readonly timeout: Duration.Duration
  /** Logs that a server cannot be used, once in an outage. */
  readonly logDown: (server: string, cause: unknown) => Effect.Effect<void>
  /** The beginning of the names of Redis keys. */
  readonly prefix: string
  readonly metrics: {
    /** The seconds of round trips to Redis, including those that failed. */
    readonly durations: Metric.Histogram<number>
    /** 1 while a server cannot be used and this process counts its callers on its own, else 0. */
    readonly fallback: Metric.Gauge<number>
    /** The charges that were decided without Redis. */
    readonly localDecisions: Metric.Counter<number>
  }
}

/** Placeholder name for the only master (single server or Sentinel), or for a cluster master that is not known yet. */
export const unnamedServer = "Redis"

const maxCloseTime = "2 seconds"

export class RedisClient extends Context.Service<RedisClient, {
  onError(listener: (error: unknown) => void): void
  readonly connect: Effect.Effect<void, Cause.UnknownError>
  run(caller: Caller, command: Command): Promise<Reply>
  serverOf(caller: Caller): string
}>()("rate-limit/RedisClient") {
  static readonly layer = ({ prefix, timeout, url }: RedisOptions) =>
    Layer.effect(
      RedisClient,
      Effect.gen(function*() {
        const { client, errors, serverOf } = open(url, Duration.toMillis(timeout))
        let connecting: Promise<unknown> = Promise.resolve()
        const connect = (): Promise<unknown> => connecting = client.connect()
        const destroy = Effect.ignore(Effect.tryPromise(async () => client.destroy()))
        const connected = Effect.ignore(Effect.tryPromise(() => connecting))
        // `destroy` misses a connection that is still opening, so call it again when `connect` has settled.
        yield* Effect.addFinalizer(() => Effect.timeoutOption(Effect.all([destroy, connected, destroy]), maxCloseTime))
        return RedisClient.of({
          onError(listener) {
            for (const name of errors) {
              client.on(name, (event) => listener(event instanceof Error ? event : event?.error))
            }
          },
          connect: Effect.asVoid(Effect.tryPromise(connect)),
          run: (caller, command) => client.runCommand(`${prefix}${caller}`, isKey(caller), command),
          serverOf: (caller) => serverOf(`${prefix}${caller}`)
        })
      })
    )
}

const optionsOf = ({ tls }: Servers, { password, username }: Credentials, timeoutMs: number) => ({
  ...username !== undefined && { username },
  ...password !== undefined && { password: Redacted.value(password) },
  disableOfflineQueue: true,
  commandsQueueMaxLength: 10_000,
  disableClientInfo: true,
  maintNotifications: "disabled" as const,
  // The library sends the next ping only after a reply. So a half-open socket becomes idle, and `socketTimeout` closes
  // it.
  pingInterval: 500,
  socket: {
    ...tls,
    ...tls !== undefined && { tls: true as const },
    connectTimeout: 1000 + timeoutMs,
    socketTimeout: 1000 + timeoutMs,
    reconnectStrategy: (retries: number) => Math.min(100 * 2 ** retries, 1000)
  }
})

const open = (url: Servers, timeoutMs: number) => {
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
    // `client._slots.rediscover` is undocumented, so it may fail in another version. `async` makes an exception a
    // rejection, and `.catch` ignores it: an exception in this listener would end the process.
    const rediscover = async ({ host, port }: { readonly host: string; readonly port: number }) =>
      client._slots.rediscover(undefined, new Set([`${host}:${port}`]))
    client.on("node-reconnecting", (node) => void rediscover(node).catch(() => {}))
    const serverOf = (key: string) => client.slots[calculateSlot.default(key)]?.master.address ?? unnamedServer
    return { client, errors: ["error", "node-error"], serverOf }
  }
  const [address] = url.addresses
  const serverName = url.tls !== undefined && isIP(address.host) === 0 ? { servername: address.host } : {}
  const socket = { ...options.socket, ...address, ...serverName }
  const client = createClient({ ...shared, ...options, socket, database: url.database })
  return { client, errors: ["error"], serverOf: () => unnamedServer }
}
