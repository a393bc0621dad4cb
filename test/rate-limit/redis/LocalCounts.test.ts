import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { LocalCounts } from "../../../src/rate-limit/redis/LocalCounts.ts"
import { RedisDown } from "../../../src/rate-limit/redis/RedisClient.ts"
import { type Merge } from "../../../src/rate-limit/redis/RedisScripts.ts"
import type { Route } from "../../../src/rate-limit/redis/Shard.ts"
import { SharedClock } from "../../../src/rate-limit/redis/SharedClock.ts"
import * as SteadyClock from "../../../src/rate-limit/SteadyClock.ts"

const stateOf = (used: number) => ({ minute: { used, resetAt: 60_000 } })
const clock = new SharedClock(SteadyClock.make(Clock.Clock.defaultValue()), () => {})
const routeTo = (): Route => ({
  connection: { run: () => Effect.die("no command is expected") },
  clock,
  isAsking: false
})
const route = routeTo()
const other = routeTo()

/** Local counts whose merges are recorded. `onMerge` decides the reply to each. */
const setup = Effect.fnUntraced(function*(
  onMerge: (merge: Merge, counts: LocalCounts) => Effect.Effect<{ readonly state: Merge["state"] }, RedisDown>
) {
  const merges: Array<Merge> = []
  const counts: LocalCounts = yield* LocalCounts.make(() => 0, (_, __, merge) =>
    Effect.suspend(() => {
      merges.push(merge)
      return onMerge(merge, counts)
    }))
  return { counts, merges }
})

describe("LocalCounts", () => {
  it.effect("are merged for an unknown caller and for a state that the same connection confirmed", () =>
    Effect.gen(function*() {
      const { counts, merges } = yield* setup(() => Effect.die("no merge is expected"))
      assert.isTrue(counts.isMerged("key:a", route))
      counts.confirm("key:a", stateOf(1), route)
      yield* counts.merge(route, "key:a")
      assert.isFalse(counts.isMerged("key:a", other))
      assert.lengthOf(merges, 0)
    }))

  it.effect("are not overwritten by a reply before they are merged", () =>
    Effect.gen(function*() {
      const { counts } = yield* setup(({ state }) => Effect.succeed({ state }))
      counts.confirm("key:a", stateOf(1), route)
      counts.set("key:a", stateOf(2))
      counts.confirm("key:a", stateOf(9), route)
      assert.deepStrictEqual(counts.get("key:a"), stateOf(2))
      yield* counts.merge(route, "key:a")
      counts.confirm("key:a", stateOf(9), route)
      assert.deepStrictEqual(counts.get("key:a"), stateOf(9))
    }))

  it.effect("are merged once for all that wait, with the state that Redis last confirmed", () =>
    Effect.gen(function*() {
      const { counts, merges } = yield* setup(() => Effect.as(Effect.yieldNow, { state: stateOf(7) }))
      counts.confirm("key:a", stateOf(1), route)
      counts.set("key:a", stateOf(3))
      yield* Effect.all([counts.merge(other, "key:a"), counts.merge(other, "key:a")], { concurrency: "unbounded" })
      assert.deepInclude(merges[0], { state: stateOf(3), confirmed: stateOf(1) })
      assert.lengthOf(merges, 1)
      assert.deepStrictEqual(counts.get("key:a"), stateOf(7))
      assert.isTrue(counts.isMerged("key:a", other))
    }))

  it.effect("are sent again unchanged, with the same number, after a merge without a reply", () =>
    Effect.gen(function*() {
      let isUp = false
      const { counts, merges } = yield* setup(({ state }) =>
        isUp ? Effect.succeed({ state }) : Effect.fail(new RedisDown({ cause: "late" }))
      )
      counts.set("key:a", stateOf(1))
      yield* Effect.flip(counts.merge(route, "key:a"))
      counts.set("key:a", stateOf(2))
      isUp = true
      yield* counts.merge(other, "key:a")
      const [first, second, third] = merges
      assert.deepStrictEqual(second, first)
      assert.deepInclude(third, { state: stateOf(2), confirmed: stateOf(1) })
      assert.notStrictEqual(third?.number, first?.number)
    }))

  it.effect("are merged again when this process counts during a merge", () =>
    Effect.gen(function*() {
      const { counts, merges } = yield* setup((merge, counts) =>
        Effect.sync(() => {
          if (merge.state.minute?.used === 1) counts.set("key:a", stateOf(2))
          return { state: merge.state }
        })
      )
      counts.set("key:a", stateOf(1))
      yield* counts.merge(route, "key:a")
      assert.deepStrictEqual(merges.map(({ confirmed, state }) => [confirmed, state]), [
        [{}, stateOf(1)],
        [stateOf(1), stateOf(2)]
      ])
      assert.isTrue(counts.isMerged("key:a", route))
    }))

  it.effect("move with the clock if no Redis has confirmed them, for the callers of the shard", () =>
    Effect.gen(function*() {
      const { counts, merges } = yield* setup(({ state }) => Effect.succeed({ state }))
      counts.confirm("key:a", stateOf(1), route)
      counts.set("key:b", stateOf(2))
      counts.set("key:c", stateOf(3))
      counts.shift(500, (caller) => caller !== "key:c")
      yield* counts.mergeAll(route, (caller) => caller !== "key:c")
      assert.lengthOf(merges, 1)
      assert.deepInclude(merges[0], { confirmed: {}, state: { minute: { used: 2, resetAt: 60_500 } } })
      assert.deepStrictEqual(counts.get("key:a"), stateOf(1))
      assert.deepStrictEqual(counts.get("key:c"), stateOf(3))
    }))
})
