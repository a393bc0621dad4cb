import { assert, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { TestClock } from "effect/testing"
import * as RedisCircuitBreaker from "../../src/rate-limit/RedisCircuitBreaker.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import { until } from "../support/Process.ts"
import { clientOf } from "./Limiters.ts"

it.effect("A start waits for Redis for at most a second", () =>
  Effect.gen(function*() {
    const client = clientOf(() => new Promise(() => {}), Effect.never)
    const starting = yield* Effect.forkChild(Effect.provideService(RedisCircuitBreaker.make, RedisClient, client))
    yield* TestClock.adjust("1 second")
    assert.isDefined(starting.pollUnsafe())
  }))

it.effect("A reply from Redis that cannot be used is logged, and its request counts without Redis", () =>
  Effect.gen(function*() {
    const log: Array<string> = []
    const { send } = yield* RedisCircuitBreaker.make.pipe(
      Effect.provideService(RedisClient, clientOf(() => Promise.resolve({ now: 0, state: {} }))),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
    )
    let failures = 0
    send("key:a", { verb: "peek" }, () => assert.fail("unexpected"), () => failures++)
    yield* until(() => failures > 0)
    assert.strictEqual(failures, 1)
    assert.include(log, "A reply from Redis could not be used")
  }))
