import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { Statement } from "effect/sql"
import { TestClock } from "effect/testing"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import * as ChangePoller from "../../src/database/ChangePoller.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { databases, random } from "../support/Harness.ts"

const unchanged: ChangePoller.Poll = { identity: "one", at: 0, snapshot: "1:1:", pets: false, keys: [] }

/** Lets a second pass, in which four polls start because the cache is read. */
const passSecond = (poller: { isFresh(): boolean }) =>
  Effect.replicateEffect(
    Effect.andThen(Effect.sync(() => poller.isFresh()), TestClock.adjust("250 millis")),
    4,
    { discard: true }
  )

describe("ChangePoller", () => {
  it.effect("ignores the result of a poll that ends after a later poll has ended", () =>
    Effect.gen(function*() {
      const results = [
        { ...unchanged, latency: 0 },
        // The second poll takes longer than the third.
        { ...unchanged, identity: "old server", latency: 600 },
        { ...unchanged, identity: "new server", latency: 0 },
        { ...unchanged, identity: "new server", latency: 0 }
      ]
      let next = 0
      const poller = yield* ChangePoller.make(() => {
        const { latency, ...poll } = results[Math.min(next++, 3)] ?? { ...unchanged, latency: 0 }
        return Effect.delay(Effect.succeed(poll), latency)
      })
      let invalidations = 0
      yield* poller.subscribe(({ everything }) => {
        if (everything) invalidations++
      })
      yield* passSecond(poller)
      assert.strictEqual(invalidations, 1)
    }))

  it.effect("reports each change once, and reports everything after a pause, a lost transaction or over 10,000 changes", () =>
    Effect.gen(function*() {
      const state = { poll: unchanged }
      const poller = yield* ChangePoller.make(() =>
        Effect.sync(() => {
          const { poll } = state
          state.poll = { ...poll, pets: false, keys: [] }
          return poll
        })
      )
      const reported: Array<string> = []
      yield* poller.subscribe(({ everything, keys, pets }) => {
        reported.push([everything && "everything", pets && "pets", ...keys].filter((name) => name !== false).join(" "))
      })
      const poll = (next: Partial<ChangePoller.Poll>) => {
        state.poll = { ...unchanged, ...next }
        return passSecond(poller)
      }
      yield* poll({ keys: ["key_a"] })
      yield* poll({ keys: ["key_a", "key_b", "key_a"] })
      yield* poll({ pets: true })
      yield* poll({ at: 3_601 })
      yield* poll({ at: 3_602, snapshot: "10:10:" })
      yield* poll({ at: 3_602, snapshot: "9:12:" })
      assert.deepStrictEqual(reported.splice(0), ["key_a", "key_a key_b", "pets", "everything", "everything"])
      yield* poll({ at: 3_602, snapshot: "9:9:", keys: Array.from({ length: 10_001 }, (_, index) => `key_${index}`) })
      assert.match(reported[0] ?? "", /^everything /)
    }))

  it.effect("logs one line when polls begin to fail, and one when they succeed again", () => {
    const lines: Array<string> = []
    const log = Logger.layer([Logger.make(({ logLevel, message }) => lines.push(`${logLevel} ${String(message)}`))])
    return Effect.gen(function*() {
      const state = { isDown: false }
      const poller = yield* ChangePoller.make(() => state.isDown ? Effect.fail("down") : Effect.succeed(unchanged))
      yield* passSecond(poller)
      assert.deepStrictEqual(lines, [])
      for (let outage = 0; outage < 2; outage++) {
        state.isDown = true
        yield* passSecond(poller)
        yield* passSecond(poller)
        assert.isFalse(poller.isFresh())
        assert.lengthOf(lines, 1)
        assert.match(lines[0] ?? "", /^Warn The database cannot be polled for changes/)
        state.isDown = false
        yield* passSecond(poller)
        yield* passSecond(poller)
        assert.isTrue(poller.isFresh())
        assert.lengthOf(lines, 2)
        assert.match(lines[1] ?? "", /^Info The database is polled for changes again/)
        lines.length = 0
      }
    }).pipe(Effect.provide(log))
  })
})

for (const database of databases.filter(({ name }) => name === "PostgreSQL")) {
  describe.skipIf(database.skip)("ChangePoller on PostgreSQL", () => {
    const polls: Array<string> = []
    const countPolls = Layer.succeed(Statement.CurrentTransformer, (statement) =>
      Effect.sync(() => {
        const [text] = statement.compile()
        if (text.includes("pg_current_snapshot")) polls.push(text)
        return statement
      }))
    layer(
      Layer.mergeAll(SqlPetRepository.layer, SqlApiKeys.layer).pipe(
        Layer.provide(random),
        Layer.provideMerge(database.layer),
        Layer.provide(countPolls),
        Layer.orDie
      ),
      { excludeTestServices: true }
    )((it) => {
      it.effect("runs one statement every 250 ms for the key cache and the pet cache together", () =>
        Effect.gen(function*() {
          const keys = yield* ApiKeys
          const pets = yield* PetRepository
          const { key } = yield* keys.issue({ name: "test", plan: "free" })
          const { id } = yield* pets.create({ name: "Rex", categoryId: 1n })
          polls.length = 0
          for (const startedAt = performance.now(); performance.now() - startedAt < 2_000;) {
            yield* keys.verify(key)
            yield* pets.find(id)
            yield* Effect.sleep("20 millis")
          }
          assert.isAtLeast(polls.length, 4)
          assert.isAtMost(polls.length, 9)
        }))
    })
  })
}
