/** Opens clients of single Redis servers and sentinels. */
import * as NodeRedis from "@effect/platform-node/NodeRedis"
import { Context, Data, Effect, Exit, Fiber, Layer, Redacted, References, Result, Scope } from "effect"
import { Redis } from "effect/persistence"
import { isIP } from "node:net"
import * as RedisUrl from "../../config/RedisUrl.ts"

/** Redis did not run the command, or not in time. */
export class RedisDown extends Data.TaggedError("RedisDown")<{ readonly cause: unknown }> {}

const tlsOptions = ({ tls }: RedisUrl.RedisUrl, host: string) =>
  tls === undefined ? {} : {
    ...Result.getOrThrowWith(RedisUrl.readTls(tls), (problem) => new Error(`REDIS_URL needs ${problem}`)),
    tls: true as const,
    // Node sends no server name by itself.
    ...isIP(host) === 0 && { servername: host }
  }

const passwordOf = ({ password, username }: RedisUrl.Credentials) => ({
  ...username !== undefined && { username },
  ...password !== undefined && { password: Redacted.value(password) }
})

/**
 * Opens a client of the server at `address` until the scope closes. TLS, and the credentials of the `role`, are those
 * of the URL.
 */
export const open = Effect.fnUntraced(function*(
  url: RedisUrl.RedisUrl,
  address: RedisUrl.Address,
  role: "data" | "sentinel" = "data"
) {
  // A separate scope, which no other fiber waits for: closing a client that is still connecting may never end.
  const scope = yield* Scope.make()
  const connecting = yield* Effect.acquireRelease(
    NodeRedis.layer({
      ...role === "data"
        ? { ...passwordOf(url.credentials), database: url.database }
        : passwordOf(url.sentinelCredentials),
      disableOfflineQueue: true,
      // Turned off: `ReplyWatch` finds late replies. The client's own timeout costs a timer and an abort signal per
      // command, and the timer outlives the reply.
      commandOptions: { timeout: 0 },
      pingInterval: 500,
      socket: {
        ...address,
        connectTimeout: 1000,
        socketTimeout: 1000,
        reconnectStrategy: false,
        ...tlsOptions(url, address.host)
      }
    }).pipe(
      Layer.buildWithScope(scope),
      // `RedisConnection` logs a failure once, so the client logs nothing.
      Effect.provideService(References.MinimumLogLevel, "None"),
      Effect.forkDetach
    ),
    (fiber) => Effect.forkDetach(Effect.andThen(Fiber.await(fiber), Scope.close(scope, Exit.void)))
  )
  const services = yield* Fiber.join(connecting)
  return { client: Context.get(services, NodeRedis.NodeRedis).client, redis: Context.get(services, Redis.Redis) }
})

export type RedisClient = Effect.Success<ReturnType<typeof open>>
