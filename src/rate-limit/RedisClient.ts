/** The client library's client for each form of `REDIS_URL`. It connects, reconnects, and finds masters by itself. */
import calculateSlot from "@redis/client/dist/lib/utils/calculate-slot.js"
import { type Cause, Context, Effect, Layer, Redacted } from "effect"
import { isIP } from "node:net"
import { createClient, createCluster, createSentinel } from "redis"
import type { Credentials, RedisUrl } from "../config/ConnectionUrls.ts"
import { Settings } from "../config/Settings.ts"
import type { Caller } from "./CallerStates.ts"
import { type Command, keyOf, type Reply, runCommand } from "./RedisScript.ts"

/** Placeholder while there is only one master, or it is not known yet. */
export const unnamedServer = "Redis"

export class RedisClient extends Context.Service<RedisClient, {
  /** Calls `listener` with errors of connections. */
  onError(listener: (error: unknown) => void): void
  /** Tries to connect, for as long as the library does. */
  readonly connect: Effect.Effect<void, Cause.UnknownError>
  run(caller: Caller, command: Command): Promise<Reply>
  /** Returns the name of the server that has the key of a caller. */
  serverOf(caller: Caller): string
}>()("petstore/RedisClient") {
  /** A client of the Redis at `REDIS_URL`, which the scope closes. */
  static readonly layer = Layer.effect(
    RedisClient,
    Effect.gen(function*() {
      const { client, errors, serverOf } = open(
        yield* Settings.redisUrl.config,
        yield* Settings.redisTimeoutMs.config
      )
      let connecting: Promise<unknown> = Promise.resolve()
      const connect = (): Promise<unknown> => connecting = client.connect()
      const destroy = async () => client.destroy()
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          // A connection that opens after the first call would stay open. A client that is closed already fails.
          for (const turn of [Promise.resolve(), connecting]) void turn.then(destroy, destroy).catch(() => {})
        })
      )
      return RedisClient.of({
        onError(listener) {
          for (const name of errors) {
            // Some events are texts, and some have the error inside.
            client.on(
              name,
              (event) => listener(event instanceof Error || typeof event !== "object" ? event : event.error)
            )
          }
        },
        connect: Effect.asVoid(Effect.tryPromise(connect)),
        run: (caller, command) => client.runCommand(caller, command),
        serverOf
      })
    })
  )
}

const optionsOf = ({ tls }: RedisUrl, { password, username }: Credentials, timeoutMs: number) => ({
  ...username !== undefined && { username },
  ...password !== undefined && { password: Redacted.value(password) },
  disableOfflineQueue: true,
  commandsQueueMaxLength: 10_000,
  disableClientInfo: true,
  maintNotifications: "disabled" as const,
  // Cuts a connection without replies: a ping waits for the reply to the last one, so the socket falls silent.
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
  // The limiter has its own timeout. The library's costs a timer for each command.
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
      // A node that is down must not stop the use of the others.
      minimizeConnections: true,
      topologyRefreshOnReconnectionAttemptStrategy: false
    })
    // The library's own strategy begins only after a node was connected once. A master can be down before that.
    client.on("node-reconnecting", ({ host, port }) => {
      client._slots.rediscover(undefined, new Set([`${host}:${port}`])).catch(() => {})
    })
    const serverOf = (caller: Caller) => client.slots[slotOf(caller)]?.master.address ?? unnamedServer
    return { client, errors: ["error", "node-error"], serverOf }
  }
  const [address] = url.addresses
  const serverName = url.tls !== undefined && isIP(address.host) === 0 ? { servername: address.host } : {}
  const socket = { ...options.socket, ...address, ...serverName }
  const client = createClient({ ...shared, ...options, socket, database: url.database })
  return { client, errors: ["error"], serverOf: () => unnamedServer }
}

/** Returns the slot of a caller in a cluster. */
export const slotOf = (caller: Caller): number => calculateSlot.default(keyOf(caller))
