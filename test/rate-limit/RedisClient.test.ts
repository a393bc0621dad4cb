import { assert, it } from "@effect/vitest"
import { Cause, ConfigProvider, Context, Effect, Exit, Layer, Logger, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as RedisCircuitBreaker from "../../src/rate-limit/RedisCircuitBreaker.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import { until } from "../support/Process.ts"
import { silentServer } from "../support/Sockets.ts"
import { clientOf } from "./Limiters.ts"

it.live("A connection to Redis that is still opening is closed before the scope of the client has ended", () =>
  Effect.gen(function*() {
    const { connections, port } = yield* silentServer
    // The server does not respond to the handshake of TLS.
    const env = { REDIS_URL: `rediss://127.0.0.1:${port}`, REDIS_TIMEOUT_MS: "10" }
    const config = ConfigProvider.layer(ConfigProvider.fromUnknown(env))
    const scope = yield* Scope.make()
    const client = yield* Layer.buildWithScope(Layer.provide(RedisClient.layer, config), scope)
    yield* Effect.forkScoped(Context.get(client, RedisClient).connect)
    yield* until(() => connections.open === 1)
    yield* Scope.close(scope, Exit.void)
    // The server takes some turns of the event loop to see it.
    yield* until(() => connections.open === 0, 0.5)
  }))

it.effect("A start waits for Redis for at most a second", () =>
  Effect.gen(function*() {
    const client = clientOf(() => new Promise(() => {}), Effect.never)
    const starting = yield* Effect.forkChild(Effect.provideService(RedisCircuitBreaker.make, RedisClient, client))
    yield* TestClock.adjust("1 second")
    assert.isDefined(starting.pollUnsafe())
  }))

it.effect("A reply from Redis that cannot be used is logged, and its request counts without Redis", () =>
  Effect.gen(function*() {
    const log: Array<unknown> = []
    const { send } = yield* RedisCircuitBreaker.make.pipe(
      Effect.provideService(RedisClient, clientOf(() => Promise.resolve({ now: 0, state: {} }))),
      Effect.provide(Logger.layer([Logger.make(({ cause, message }) => void log.push(message, cause))]))
    )
    const defect = new Error("unexpected")
    let failures = 0
    const useReply = () => {
      throw defect
    }
    send("key:a", { verb: "peek" }, useReply, () => failures++)
    yield* until(() => failures > 0)
    assert.strictEqual(failures, 1)
    assert.includeDeepMembers(log, [["A reply from Redis could not be used"], Cause.die(defect)])
  }))
