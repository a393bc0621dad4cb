/**
 * Processes that evict and reload the states of keys decide like a reference that never evicts.
 * `SEEDS=100000 npx vitest run test/simulation/Evictions.test.ts` runs more seeds.
 */
import { assert, it } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Logger, Scope } from "effect"
import { isDeepStrictEqual } from "node:util"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import * as KeyStates from "../../src/rate-limit/KeyStates.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { type Caller, type Unavailable } from "../../src/rate-limit/RateLimiter.ts"
import { makeNetwork, makeProcess, makeWorld, type Process } from "./World.ts"

interface Row {
  readonly process: Process
  readonly number: number
  readonly savedAt: number
  readonly state: Policy.State
}

const callers: ReadonlyArray<Caller> = ["key:a", "key:b", "key:c", "key:d", "key:e", "key:f", "key:g", "key:h"]
const limits = { perMinute: 4, perDay: 9 }
/** Faults end before the last decisions, so that the saves of the last charges succeed. */
const end = 100_000

const simulate = async (seed: number) => {
  const world = makeWorld(seed)
  const problems: Array<string> = []
  const counts = { decisions: 0, loads: 0 }
  const network = makeNetwork(world)
  /** The rows of a key, as the statements of `SavedStates.ts` read and write them. */
  const table = new Map<string, ReadonlyArray<Row>>()
  const select = (process: Process, caller: string) => {
    const rows = table.get(caller) ?? []
    return rows.find((row) => row.process === process) ?? rows.toSorted((a, b) => b.savedAt - a.savedAt)[0]
  }
  const upsert = (caller: string, row: Row): void => {
    const rows = table.get(caller) ?? []
    const own = rows.find(({ process }) => process === row.process)
    if (own !== undefined && own.number >= row.number) return
    table.set(caller, [...rows.filter((each) => each !== own), row])
  }
  const send = <A>(process: Process, serve: () => A) =>
    Effect.callback<A, ServiceUnavailable>((resume) => {
      const fail = () => resume(Effect.fail(new ServiceUnavailable()))
      network.send<A>(process, (reply) => reply(serve()), (value) => resume(Effect.succeed(value)), fail)
    })

  const start = Effect.fnUntraced(function*(process: Process) {
    /** The states of other processes that this one has read, and the states that it never evicts. */
    const inherited = new Map<string, Array<Policy.State>>()
    const reference = new Map<string, Policy.State>()
    const read = (keys: ReadonlyArray<string>) =>
      new Map(keys.flatMap((caller) => {
        counts.loads++
        const row = select(process, caller)
        if (row?.process !== process) {
          inherited.set(caller, [...inherited.get(caller) ?? [], row?.state ?? {}])
        }
        return row === undefined ? [] : [[caller, row.state] as const]
      }))
    const states = yield* KeyStates.make({
      table: "key_limits",
      unavailable: new ServiceUnavailable(),
      load: (keys) => send(process, () => read(keys)),
      save: (changed, number) =>
        send(process, () => {
          for (const [caller, state] of changed) upsert(caller, { process, number, savedAt: world.now, state })
        })
    }, { maxStates: 4 }).pipe(Effect.provide(BackgroundFailures.layerIgnored))
    const limiter = KeyStates.makeLimiterOn({
      find: states.find,
      load: states.load,
      whyUnchangeable: states.whyUnchangeable,
      set(caller, state, before) {
        if (state === before) return
        states.change(caller, state)
        if (reference.has(caller)) return
        const isRead = inherited.get(caller)?.some((each) => isDeepStrictEqual(each, before)) === true
        if (!isRead) problems.push(`${world.now} ms: ${caller} began with ${JSON.stringify(before)}`)
        reference.set(caller, before)
      }
    }, process.clock)
    /** A call, and the same call on the reference. `decide` runs when the limiter decides. */
    const call = <A>(
      caller: Caller,
      effect: Effect.Effect<A, Unavailable>,
      decide: (state: Policy.State, result: A, now: number) => Policy.State
    ) =>
      Effect.map(effect, (result) => {
        const state = reference.get(caller)
        if (state === undefined) return
        counts.decisions++
        reference.set(caller, decide(state, result, process.clock.currentTimeMillisUnsafe()))
      })
    const check = (caller: Caller, actual: unknown, expected: unknown): void => {
      if (isDeepStrictEqual(actual, expected)) return
      problems.push(`${world.now} ms: ${caller} got ${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`)
    }
    return {
      process,
      charge: (caller: Caller) =>
        call(caller, limiter.charge(caller, limits), (state, actual, now) => {
          const { decision, next } = Policy.decide(state, limits, now, true)
          check(caller, actual, decision)
          return next
        }),
      peek: (caller: Caller) =>
        call(caller, limiter.peek(caller, limits), (state, actual, now) => {
          check(caller, actual, Policy.peek(state, limits, now))
          return state
        }),
      unban: (caller: Caller) => call(caller, limiter.unban(caller), (state, _, now) => Policy.unban(state, now)),
      /** A statement that looks a key up, and brings its state. It reads at once, and may take long to reply. */
      lookUp: (caller: Caller, replyMs = 0) =>
        Effect.suspend(() => {
          const startedAt = process.clock.monotonicTimeNanosUnsafe()
          return Effect.map(
            Effect.tap(send(process, () => read([caller])), Effect.sleep(replyMs)),
            (found) => states.addLoaded(caller, found.get(caller), startedAt)
          )
        })
    }
  })
  type Service = Effect.Success<ReturnType<typeof start>>

  const scope = Scope.makeUnsafe()
  const run = <A, E>(
    process: Process,
    effect: Effect.Effect<A, E, Scope.Scope>,
    onSuccess: (value: A) => void
  ): void => {
    const context = Context.make(Scope.Scope, scope).pipe(
      Context.add(Logger.CurrentLoggers, new Set()),
      Context.add(Clock.Clock, process.clock)
    )
    Effect.runFork(Effect.provideContext(Effect.withTracerEnabled(effect, false), context)).addObserver((exit) => {
      if (Exit.isSuccess(exit)) onSuccess(exit.value)
    })
  }
  const services: Array<Service> = []
  const startProcess = (): void => {
    const process = makeProcess(world)
    run(process, start(process), (service) => services.push(service))
  }
  startProcess()
  startProcess()
  world.at(end / 2, startProcess)

  const during = (action: () => void): void => void world.at(world.between(10, end), action)
  // A busy key, keys in bursts, and keys that are rarely used.
  const anyCaller = () => world.pick([...callers, "key:a" as const, "key:a" as const, "key:b" as const])
  const charge = ({ charge, process }: Service, caller: Caller) => run(process, charge(caller), () => {})
  for (let i = 0; i < 200; i++) {
    during(() => {
      const [service, caller] = [world.pick(services), anyCaller()]
      const action = world.pick(["charge", "charge", "charge", "lookUp", "peek", "unban"] as const)
      if (action !== "charge") run(service.process, service[action](caller), () => {})
      // A request charges its key right after the lookup, or after a pause.
      if (action === "lookUp") service.process.after(world.pick([5, 20, 3_000]), () => charge(service, caller))
      if (action === "charge") { for (let j = world.pick([0, 1, 9]); j >= 0; j--) charge(service, caller) }
    })
  }
  /** A lookup whose reply comes after its key was charged, saved and, because of other keys, perhaps evicted. */
  const overtake = (): void => {
    const [service, caller, replyMs] = [world.pick(services), anyCaller(), world.between(600, 8_000)]
    const { lookUp, process } = service
    run(process, lookUp(caller, replyMs), () => {})
    process.after(20, () => charge(service, caller))
    if (world.chance(0.3)) process.clockOffset += world.pick([-3_600_000, 3_600_000])
    for (let j = 0; j < 12; j++) {
      process.after(world.between(50, replyMs), () => run(process, lookUp(anyCaller()), () => {}))
    }
    process.after(replyMs + 50, () => charge(service, caller))
  }
  for (let i = 0; i < 40; i++) during(overtake)
  for (let i = 0; i < 10; i++) {
    during(() => {
      network.faults = world.pick([0, 0.3, 0.6])
    })
    during(() => world.pick(services).process.pause(world.between(50, 6_000)))
    during(() => {
      const { process } = world.pick(services)
      process.clockOffset += world.pick([-86_400_000, -3_600_000, 61_000, 3_600_000, 86_400_000])
    })
  }
  during(() => void (network.downUntil = world.now + world.between(100, 10_000)))
  during(() => void (network.frozenUntil = world.now + world.between(100, 10_000)))
  await world.runUntil(() => false, end)
  return { problems, ...counts }
}

const { SEED = "1", SEEDS = process.env.SEED === undefined ? "40" : "1" } = process.env
const [first, count] = [Number(SEED), Number(SEEDS)]

it(
  "Limits are exact in any order of evictions, loads, saves and faults",
  { timeout: 60_000 + 200 * count },
  async () => {
    let [decisions, loads] = [0, 0]
    for (let seed = first; seed < first + count; seed++) {
      const result = await simulate(seed)
      assert.deepStrictEqual(result.problems, [], `SEED=${seed} npx vitest run test/simulation/Evictions.test.ts`)
      decisions += result.decisions
      loads += result.loads
    }
    assert.isAbove(decisions, 100 * count)
    assert.isAbove(loads, 50 * count)
  }
)
