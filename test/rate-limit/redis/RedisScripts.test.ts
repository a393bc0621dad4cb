/** The scripts in a real Redis whose clock the test sets. */
import { NodeRedis } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { Redis } from "effect/persistence"
import * as fc from "fast-check"
import type { Limits } from "../../../src/api/Plans.ts"
import type { Caller } from "../../../src/rate-limit/CallerStates.ts"
import * as RedisScripts from "../../../src/rate-limit/redis/RedisScripts.ts"
import { decideBatch } from "../../../src/rate-limit/redis/TurnBatcher.ts"
import * as RedisServer from "../../support/Redis.ts"
import { asExpected, model } from "../Model.ts"

const pause = fc.oneof(
  { weight: 4, arbitrary: fc.constant(0) },
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 70_000 }) },
  { weight: 2, arbitrary: fc.constantFrom(59_999, 60_000, 60_001, 3_600_000, 3_660_000, 86_399_999, 86_400_000) }
)
const limitsOf = fc.record({ perMinute: fc.integer({ min: 1, max: 6 }), perDay: fc.integer({ min: 1, max: 30 }) })

const setup = Effect.gen(function*() {
  const redis = yield* RedisServer.run
  let now = 1_800_000_000_000
  redis.setTime(now)
  yield* redis.startWithClock
  const connection = yield* Layer.build(NodeRedis.layer({ url: redis.url }))
  const { eval: run } = Context.get(connection, Redis.Redis)
  const reading = Effect.fnUntraced(function*(reply: Effect.Effect<RedisScripts.Reply | null, Redis.RedisError>) {
    const decoded = yield* reply
    assert.isNotNull(decoded)
    const read = RedisScripts.read(decoded)
    assert.strictEqual(read.now, now)
    return read.state
  })
  const time = () => ({ estimate: now, clockOffset: 0 })
  return {
    now: () => now,
    pass: (milliseconds: number) => {
      now += milliseconds
      redis.setTime(now)
    },
    /** Charges `charges` requests by one script call, and returns the state before them. */
    charge: (caller: Caller, limits: Limits, charges: number) =>
      reading(run(RedisScripts.charge)(caller, limits, charges, time())),
    unban: (caller: Caller) => reading(run(RedisScripts.unban)(caller, time()))
  }
})

const decisionsOf = (
  caller: Caller,
  limits: Limits,
  calls: number,
  state: Parameters<typeof decideBatch>[1],
  now: number
) =>
  decideBatch(
    { caller, limits, calls: Array.from({ length: calls }, () => ({ isCharge: true, resume: () => {} })) },
    state,
    now
  )

describe.skipIf(RedisServer.missing !== undefined)("The charge script", () => {
  it.live(
    "charges many requests at once as it charges them one by one, decision by decision, for any limits and times",
    () =>
      Effect.gen(function*() {
        const { charge, now, pass, unban } = yield* setup
        const step = fc.record({
          pause,
          caller: fc.constantFrom("key:a", "key:b", "address:a"),
          charges: fc.integer({ min: 0, max: 12 }),
          /** The limits may change with the plan of a key. */
          changed: fc.option(limitsOf, { freq: 8 }),
          lift: fc.integer({ min: 0, max: 9 })
        })
        let runs = 0
        let banned = 0
        const property = fc.asyncProperty(limitsOf, fc.array(step, { maxLength: 25 }), (first, steps) =>
          Effect.gen(function*() {
            const run = runs++
            let limits = first
            for (const { caller, changed, charges, lift, pause } of steps) {
              pass(pause)
              if (changed !== null) {
                limits = changed
              }
              const [kind, name] = caller.split(":")
              const callerOf = (copy: string): Caller =>
                kind === "key" ? `key:${run}${copy}${name}` : `address:${run}${copy}${name}`
              const [together, apart] = [callerOf("together"), callerOf("apart")]
              const batch = decisionsOf(together, limits, charges, yield* charge(together, limits, charges), now())
              const singles: Array<typeof batch.decisions[number]> = []
              for (let i = 0; i < charges; i++) {
                singles.push(...decisionsOf(apart, limits, 1, yield* charge(apart, limits, 1), now()).decisions)
              }
              assert.deepStrictEqual(batch.decisions, singles)
              banned += singles.filter(({ banBegan }) =>
                banBegan
              ).length
              // A script without charges reads the state.
              const [after, same] = [yield* charge(together, limits, 0), yield* charge(apart, limits, 0)]
              assert.deepStrictEqual(after, same)
              // A state without rejections has two forms, which decide alike.
              assert.deepStrictEqual(
                decisionsOf(together, limits, 1, after, now()).decisions,
                decisionsOf(together, limits, 1, batch.next, now()).decisions
              )
              if (lift === 0) {
                yield* unban(together)
                yield* unban(apart)
              }
            }
          }).pipe(Effect.runPromise))
        yield* Effect.promise(() =>
          fc.assert(property, { numRuns: 60 })
        )
        assert.isAbove(banned, 20)
      }),
    60_000
  )

  it.live(
    "decides as the model does, with any split of the requests of an instant over script calls",
    () =>
      Effect.gen(function*() {
        const { charge, now, pass, unban } = yield* setup
        const step = fc.record({
          pause,
          batches: fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 4 }),
          lift: fc.integer({ min: 0, max: 9 })
        })
        let runs = 0
        const property = fc.asyncProperty(
          limitsOf,
          fc.boolean(),
          fc.array(step, { maxLength: 25 }),
          (limits, isKey, steps) =>
            Effect.gen(function*() {
              const caller: Caller = isKey ? `key:model${runs++}` : `address:model${runs++}`
              const expected = model(limits, isKey)
              for (const { batches, lift, pause } of steps) {
                pass(pause)
                for (const charges of batches) {
                  const { decisions } = decisionsOf(
                    caller,
                    limits,
                    charges,
                    yield* charge(caller, limits, charges),
                    now()
                  )
                  assert.deepStrictEqual(decisions.map(asExpected), decisions.map(() => expected.request(now())))
                }
                if (lift === 0) {
                  yield* unban(caller)
                  expected.lift(now())
                }
              }
            }).pipe(Effect.runPromise)
        )
        yield* Effect.promise(() => fc.assert(property, { numRuns: 60 }))
      }),
    60_000
  )
})
