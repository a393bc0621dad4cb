/** Runs the suite of rate limiters on a Redis cluster. */
import { Effect, Layer } from "effect"
import * as Redis from "../../support/Redis.ts"
import * as RedisCluster from "../../support/RedisCluster.ts"
import { limiterSuite, onRedis } from "../LimiterSuite.ts"

/** Three masters. On their clocks no node takes another one for failed. */
const onCluster = onRedis(Effect.fnUntraced(function*({ pass, setServers }) {
  const { url } = yield* RedisCluster.run({
    replicaCount: 0,
    timeoutMs: 1e12,
    start: (nodes) =>
      Effect.gen(function*() {
        setServers(nodes)
        yield* Effect.forEach(nodes, ({ startWithClock }) => startWithClock)
        // A master serves nothing in the two seconds after its start.
        yield* Effect.sleep("500 millis")
        pass(3_000)
      })
  })
  return url
}))

const skip = Redis.missing !== undefined
limiterSuite({ name: "a Redis cluster", skip, runs: 50, testClock: false, layer: Layer.orDie(onCluster) })
