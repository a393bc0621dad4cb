/** The client library's client for each form of `REDIS_URL`. It connects, reconnects, and finds masters by itself. */
import { type Cause, Effect, Redacted } from "effect"
import { isIP } from "node:net"
import { createClient, createCluster, createSentinel } from "redis"
import type { Limits } from "../api/Plans.ts"
import type { Credentials, RedisUrl } from "../config/ConnectionUrls.ts"
import type { Caller } from "./CallerStates.ts"
import { charge, keyOf, type Reply } from "./RedisScript.ts"

/** The name of a single server, of the master of sentinels, and of a master that the client does not know yet. */
export const unnamedServer = "Redis"

export interface RedisClient {
  /** Tries to connect, for as long as the library does. */
  readonly connect: Effect.Effect<void, Cause.UnknownError>
  readonly charge: (caller: Caller, limits: Limits, charges: number) => Promise<Reply>
  /** Returns the name of the server that has the key of a caller. */
  readonly serverOf: (caller: Caller) => string
}

const optionsOf = ({ tls }: RedisUrl, { password, username }: Credentials) => ({
  ...username !== undefined && { username },
  ...password !== undefined && { password: Redacted.value(password) },
  disableOfflineQueue: true,
  commandsQueueMaxLength: 10_000,
  disableClientInfo: true,
  maintNotifications: "disabled" as const,
  // The pings and the timeout of the socket cut a connection without replies: a ping waits for the reply to the last.
  pingInterval: 500,
  socket: {
    ...tls,
    ...tls !== undefined && { tls: true as const },
    connectTimeout: 1000,
    socketTimeout: 1000,
    reconnectStrategy: (retries: number) => Math.min(100 * 2 ** retries, 1000)
  }
})

const open = (url: RedisUrl) => {
  const options = optionsOf(url, url.credentials)
  // The limiter has its own timeout. The library's costs a timer for each command.
  const shared = { scripts: { charge }, commandOptions: { timeout: 0 } }
  if (url.kind === "sentinel") {
    const client = createSentinel({
      ...shared,
      name: url.masterName,
      sentinelRootNodes: url.addresses.map((address) => ({ ...address })),
      nodeClientOptions: { ...options, database: url.database },
      sentinelClientOptions: optionsOf(url, url.sentinelCredentials)
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
    const serverOf = (caller: Caller) => client.slots[slotOf(keyOf(caller))]?.master.address ?? unnamedServer
    return { client, errors: ["error", "node-error"], serverOf }
  }
  const [address] = url.addresses
  const serverName = url.tls !== undefined && isIP(address.host) === 0 ? { servername: address.host } : {}
  const socket = { ...options.socket, ...address, ...serverName }
  const client = createClient({ ...shared, ...options, socket, database: url.database })
  return { client, errors: ["error"], serverOf: () => unnamedServer }
}

/** Makes a client, which is closed with the scope. `onError` gets the errors that the library reports as events. */
export const make = Effect.fnUntraced(function*(url: RedisUrl, onError: (error: unknown) => void) {
  const { client, errors, serverOf } = open(url)
  for (const name of errors) {
    // Some events are texts, and some have the error inside.
    client.on(name, (event) => onError(event instanceof Error || typeof event !== "object" ? event : event.error))
  }
  let connecting: Promise<unknown> = Promise.resolve()
  const connect = (): Promise<unknown> => connecting = client.connect()
  const destroy = async () => client.destroy()
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      // A connection that opens after the first call would stay open. A client that is closed already fails.
      for (const turn of [Promise.resolve(), connecting]) void turn.then(destroy, destroy).catch(() => {})
    })
  )
  const made: RedisClient = {
    connect: Effect.asVoid(Effect.tryPromise(connect)),
    charge: (caller, limits, charges) => client.charge(caller, limits, charges),
    serverOf
  }
  return made
})

/** Returns the slot of a key in a cluster: CRC16, as in XMODEM. The keys have no hash tags. */
export const slotOf = (key: string): number => {
  let crc = 0
  for (const byte of Buffer.from(key)) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x80_00 ? crc << 1 ^ 0x10_21 : crc << 1) & 0xff_ff
  }
  return crc % 16_384
}
