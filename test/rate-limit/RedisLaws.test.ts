/** The laws at the head of `RedisCircuitBreaker.ts` and `RedisRateLimiter.ts`, on clients that behave in any way. */
import { assert, it } from "@effect/vitest"
import { Cause, Context, Duration, Effect, Exit, Fiber, Layer, Logger, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { ErrorReply } from "redis"
import { redisMetrics } from "../../src/config/RedisSettings.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { type Caller, RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import * as RedisCircuitBreaker from "../../src/rate-limit/RedisCircuitBreaker.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import * as RedisRateLimiter from "../../src/rate-limit/RedisRateLimiter.ts"
import type { Command, Reply } from "../../src/rate-limit/RedisScript.ts"
import { clientOf } from "./Limiters.ts"

/** The default of `REDIS_TIMEOUT_MS`. */
const timeoutMs = 250
const options = { timeout: Duration.millis(timeoutMs), metrics: redisMetrics, logDown: () => Effect.void }
const stepMs = 5

const kinds = ["reply", "reply", "reply", "closed", "OOM", "ERR", "throws", "never"] as const
/** How the client ends one command: in time, or late. The timeout ends in between, because it is measured in ticks. */
const inTime = fc.integer({ min: 1, max: 44 })
const late = fc.integer({ min: 52, max: 80 })
const behaviour = fc.record({
  kind: fc.constantFrom(...kinds),
  afterMs: fc.oneof({ weight: 3, arbitrary: inTime }, late).map((steps) => steps * stepMs)
})
type Behaviour = typeof behaviour extends fc.Arbitrary<infer A> ? A : never

const errors = { closed: new Error("closed"), OOM: new ErrorReply("OOM full"), ERR: new ErrorReply("ERR unknown") }

interface Timer {
  readonly at: number
  readonly run: () => void
}

/** A world whose time moves in steps, and in which promises and fibers go on between two steps. */
const makeWorld = () => {
  const timers = new Set<Timer>()
  const world = {
    now: 0,
    /** Ends a command as `kind` says. `serve` makes the reply when the reply is sent. */
    end: ({ afterMs, kind }: Behaviour, serve: () => Reply, onEnd: (kind: Behaviour["kind"]) => void) => {
      if (kind === "throws") {
        onEnd(kind)
        throw new Error("thrown")
      }
      return new Promise<Reply>((resolve, reject) => {
        if (kind === "never") return
        const run = () => {
          onEnd(kind)
          if (kind === "reply") resolve(serve())
          else reject(errors[kind])
        }
        timers.add({ at: world.now + afterMs, run })
      })
    },
    advance: (ms: number) =>
      Effect.gen(function*() {
        for (const end = world.now + ms; world.now < end;) {
          world.now += stepMs
          for (const timer of timers) {
            if (timer.at > world.now) continue
            timers.delete(timer)
            timer.run()
            yield* turn
          }
          yield* TestClock.adjust(stepMs)
          yield* turn
        }
      })
  }
  return world
}

const turn = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))

const run = (effect: Effect.Effect<void, unknown, Scope.Scope>) =>
  effect.pipe(
    Effect.scoped,
    Effect.provide([TestClock.layer(), Logger.layer([])]),
    Effect.runPromise
  )

const lateReply = fc.record({ kind: fc.constant("reply" as const), afterMs: late.map((steps) => steps * stepMs) })
const probe = fc.oneof(behaviour, lateReply)
const send = fc.record({
  server: fc.constantFrom("a", "b"),
  behaviour,
  throwing: fc.constantFrom("", "", "", "onReply", "onFailure"),
  pauseMs: fc.constantFrom(0, 0, 5, 20, 100, 100, 400, 600)
})

it("The circuit breaker ends each command once and in time, for any order of replies, faults and exceptions", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(send, { maxLength: 30 }),
      fc.array(probe, { size: "+1" }),
      (sends, probes) =>
        run(Effect.gen(function*() {
          const world = makeWorld()
          const upSince = new Map<string, number>()
          const probing = new Set<string>()
          const open = new Set<string>()
          let isClosed = false
          // The circuit breaker catches what a client throws, so a broken law is noted.
          const problems: Array<string> = []
          const check = (holds: boolean, problem: string) =>
            void (holds || problems.push(`${world.now} ms: ${problem}`))
          let next: Behaviour | undefined
          const probeBehaviours = [{ kind: "reply", afterMs: 5 } as const, ...probes]
          /** The commands that were sent and have no end, by server. */
          const commands: Array<
            { server: string; at: number; ends: Array<string>; endedAt: number; wasSent: boolean; throwing: string }
          > = []
          let current: (typeof commands)[number] | undefined
          const fail = (server: string): void => {
            open.add(server)
            const failed = commands.filter((each) => each.server === server && each.wasSent && each.ends.length === 0)
            setImmediate(() =>
              check(failed.every(({ ends }) => ends.length === 1), "commands in flight do not fail at once")
            )
          }
          const client = RedisClient.of({
            ...clientOf(() => Promise.reject(new Error("unused"))),
            serverOf: (caller) => caller.slice("key:".length),
            run: (caller, { verb }) => {
              check(!isClosed, "a command is sent after the scope has closed")
              const server = caller === "key:probe" ? "Redis" : caller.slice("key:".length)
              if (verb === "probe") {
                check(!probing.has(server), "two probes at a time")
                const probed = probeBehaviours.shift() ?? { kind: "reply", afterMs: 5 }
                // A reply after the timeout closes nothing, and the next probe follows it.
                probing.add(server)
                const startedAt = world.now
                return world.end(probed, () => ({ now: 0, state: {} }), (kind) => {
                  probing.delete(server)
                  if (kind === "reply" && world.now - startedAt < timeoutMs) {
                    open.delete(server)
                    upSince.set(server, world.now)
                  }
                })
              }
              check(!open.has(server), "an open breaker sends a command")
              const sent = current
              if (sent === undefined) throw new Error("unreachable")
              sent.wasSent = true
              return world.end(next ?? { kind: "never", afterMs: 0 }, () => ({ now: 0, state: {} }), (kind) => {
                if (sent.ends.length === 0 && kind !== "reply" && kind !== "ERR" && !isClosed) fail(server)
              })
            }
          })
          const scope = yield* Scope.make()
          const making = yield* Effect.forkChild(
            RedisCircuitBreaker.make(options).pipe(
              Effect.provideService(RedisClient, client),
              Scope.provide(scope)
            )
          )
          yield* world.advance(20)
          const breaker = yield* Fiber.join(making)
          assert.isTrue(breaker.isUp())
          for (const { behaviour, pauseMs, server, throwing } of sends) {
            const command = { server, at: world.now, ends: new Array<string>(), endedAt: 0, wasSent: false, throwing }
            const end = (name: string) => () => {
              command.ends.push(name)
              command.endedAt = world.now
              // A timeout opens the breaker too.
              if (name === "onFailure" && command.wasSent && command.endedAt - command.at >= timeoutMs - 25) {
                open.add(server)
              }
              if (name === throwing) throw new Error(`${name} throws`)
            }
            commands.push(command)
            current = command
            next = behaviour
            const wasOpen = open.has(server)
            breaker.send(`key:${server}`, { verb: "peek" }, end("onReply"), end("onFailure"))
            check(command.wasSent !== wasOpen, "a closed breaker does not send a command")
            yield* world.advance(pauseMs)
            yield* turn
          }
          if (sends.length % 2 === 0) yield* world.advance(timeoutMs)
          isClosed = true
          yield* Scope.close(scope, Exit.void)
          breaker.send("key:a", { verb: "peek" }, () => assert.fail("sent after the end"), () => {})
          yield* world.advance(timeoutMs)
          for (const { at, endedAt, ends, throwing } of commands) {
            const all = throwing === "onReply" ? ["onReply,onFailure", "onFailure"] : ["onReply", "onFailure"]
            check(all.includes(ends.join()), `the command of ${at} ms ended with [${ends.join()}]`)
            check(endedAt - at <= timeoutMs, `the command of ${at} ms took ${endedAt - at} ms`)
          }
          assert.deepStrictEqual(problems, [])
        }))
    ),
    { numRuns: 150 }
  ))

const call = fc.record({
  caller: fc.constantFrom<Caller>("key:a", "key:b"),
  verb: fc.constantFrom<"charge" | "peek" | "unban">("charge", "charge", "charge", "charge", "peek", "unban"),
  perDay: fc.constantFrom(7, 7, 7, 9),
  perMinute: fc.constantFrom(1_000, 1_000, 2_000),
  isInterrupted: fc.boolean(),
  // Limits that throw when they are used, and a fiber that throws when it gets its decision.
  isUndecidable: fc.constantFrom(false, false, false, false, false, true),
  throwsAtEnd: fc.constantFrom(false, false, false, true)
})
const unusable: Caller = "key:unusable"
const unusableLimits: Policy.Limits = {
  perMinute: 1,
  get perDay(): never {
    throw new Error("unusable")
  }
}
const turnWith = (behaviours: fc.Arbitrary<ReadonlyArray<Readonly<{ behaviour: Behaviour; isUnusable: boolean }>>>) =>
  fc.record({ calls: fc.array(call, { maxLength: 8 }), behaviours, pauseMs: fc.constantFrom(0, 0, 5, 20, 400) })
const faults = fc.array(fc.record({ behaviour, isUnusable: fc.constantFrom(false, false, false, true) }))
/** Each command has a reply in time, after any later one. */
const reordered = fc.array(fc.record({
  behaviour: fc.record({ kind: fc.constant("reply" as const), afterMs: inTime.map((steps) => steps * stepMs) }),
  isUnusable: fc.constant(false)
}))
/** By default, each command has a reply after one step. */
const turns = fc.oneof(
  fc.array(turnWith(faults), { maxLength: 12 }),
  fc.array(turnWith(fc.constant([])), { maxLength: 5 }),
  fc.array(turnWith(reordered), { maxLength: 5 })
)
type Turns = typeof turns extends fc.Arbitrary<infer A> ? A : never
/** More calls than a script may decide. */
const manyCalls: Turns = [{
  calls: Array.from({ length: 300 }, () => ({
    caller: "key:a",
    verb: "charge",
    perDay: 7,
    perMinute: 1_000,
    isInterrupted: false,
    isUndecidable: false,
    throwsAtEnd: false
  })),
  behaviours: [],
  pauseMs: 5
}]

it("The limiter on Redis decides each call once and in order, and charges once, for any replies and interruptions", () =>
  fc.assert(
    fc.asyncProperty(turns, (turns) =>
      run(Effect.gen(function*() {
        const world = makeWorld()
        const problems: Array<string> = []
        const check = (holds: boolean, problem: string) => void (holds || problems.push(`${world.now} ms: ${problem}`))
        const states = new Map<Caller, Policy.State>()
        let behaviours: ReadonlyArray<(typeof turns)[number]["behaviours"][number]> = []
        let sentInTurn = 0
        const charged = new Map<Caller, number>()
        const chargedBeforeUnban: Array<number> = []
        let [hasFault, isDown] = [false, false]
        const serve = (caller: Caller, command: Command): Reply => {
          const before = states.get(caller) ?? {}
          let state = before
          const requests = command.verb === "charge" ? command.requests : 0
          const limits = command.verb === "charge" ? command.limits : { perMinute: 1, perDay: 1 }
          for (let i = 0; i < requests; i++) state = Policy.decide(state, limits, world.now, false).next
          states.set(caller, state)
          return { now: world.now, state: before }
        }
        const client = clientOf((caller, command) => {
          if (command.verb === "probe" || caller === unusable) return Promise.resolve({ now: 0, state: {} })
          if (isDown) return Promise.reject(errors.closed)
          if (command.verb === "unban") {
            const before = chargedBeforeUnban.shift()
            check(hasFault || before === (charged.get(caller) ?? 0), "an unban overtakes a charge, or is overtaken")
          }
          if (command.verb === "charge") check(command.requests <= 128, "a script runs for too long")
          if (command.verb === "charge") charged.set(caller, (charged.get(caller) ?? 0) + command.requests)
          const { behaviour = { kind: "reply", afterMs: 5 } as const, isUnusable = false } = behaviours[sentInTurn++] ??
            {}
          const isLate = behaviour.afterMs >= timeoutMs
          hasFault ||= behaviour.kind !== "reply" || isLate || isUnusable
          // Redis runs a command when it arrives, and replies later.
          const reply = serve(caller, command)
          const unusableReply = new Proxy(reply, {
            get(): never {
              throw new Error("unusable")
            }
          })
          return world.end(behaviour, () =>
            isUnusable
              ? {
                ...reply,
                get state() {
                  return unusableReply.state
                }
              }
              : reply, () => {})
        })
        const limiters = Layer.build(Layer.fresh(RedisRateLimiter.layerWithoutClient(options)))
        const making = yield* Effect.forkChild(Effect.provideService(limiters, RedisClient, client))
        yield* world.advance(20)
        const limiter = Context.get(yield* Fiber.join(making), RateLimiter)
        const made = new Map<Caller, number>()
        const allowed = new Map<Caller, number>()
        const running: Array<Fiber.Fiber<void, unknown>> = []
        const undecidable: Array<Fiber.Fiber<Exit.Exit<Policy.Decision, unknown>>> = []
        const turnsInOrder: Array<Map<Caller, Array<number>>> = []
        for (const { calls, behaviours: given, pauseMs } of turns) {
          behaviours = given
          sentInTurn = 0
          const inOrder = new Map<Caller, Array<number>>([["key:a", []], ["key:b", []]])
          turnsInOrder.push(inOrder)
          const wasShared = (yield* limiter.counting) === "shared"
          for (const [index, each] of calls.entries()) {
            const { caller, isInterrupted, isUndecidable, perDay, perMinute, throwsAtEnd, verb } = each
            const at = world.now
            if (isUndecidable) {
              const decision = limiter[verb === "unban" ? "peek" : verb](unusable, unusableLimits)
              undecidable.push(yield* Effect.forkChild(Effect.exit(decision)))
              continue
            }
            if (verb === "unban") {
              chargedBeforeUnban.push(made.get(caller) ?? 0)
              running.push(yield* Effect.forkChild(limiter.unban(caller), { startImmediately: true }))
              continue
            }
            if (verb === "charge" && wasShared) made.set(caller, (made.get(caller) ?? 0) + 1)
            const decision = limiter[verb](caller, { perMinute, perDay })
            const fiber = yield* Effect.forkChild(
              Effect.matchCause(decision, {
                onFailure: (cause) => check(Cause.hasInterruptsOnly(cause) && isInterrupted, `a call dies`),
                onSuccess: (decided) => {
                  check(world.now - at <= timeoutMs, `a call took ${world.now - at} ms`)
                  const limits = decided.windows.map(({ limit }) => limit)
                  check(limits.join() === `${perMinute},${perDay}`, "a call is decided with the limits of another")
                  if (verb === "peek" || !decided.allowed) return
                  allowed.set(caller, (allowed.get(caller) ?? 0) + 1)
                  const uses = inOrder.get(caller)
                  if (uses !== undefined) uses[index] = perDay - decided.windows[1].remaining
                }
              }),
              { startImmediately: true }
            )
            // A peek can end at once, before it has an observer.
            if (throwsAtEnd && !isInterrupted && fiber.pollUnsafe() === undefined) {
              fiber.addObserver(() => {
                throw new Error("a caller throws")
              })
            }
            if (isInterrupted) yield* Fiber.interrupt(fiber)
            else running.push(fiber)
          }
          yield* turn
          for (const [caller, count] of made) {
            const sent = charged.get(caller) ?? 0
            check(hasFault ? sent <= count : sent === count, `${sent} of ${count} charges of ${caller} are sent`)
          }
          yield* world.advance(pauseMs)
        }
        yield* world.advance(timeoutMs)
        for (const fiber of running) check(fiber.pollUnsafe() !== undefined, "a call has no end")
        for (const fiber of undecidable) {
          const exit = fiber.pollUnsafe()
          check(exit?._tag === "Success" && Exit.hasDies(exit.value), "a call that cannot be decided does not die")
        }
        // Now Redis is down, so the process counts on from the newest state that Redis returned.
        isDown = true
        for (const [caller, state] of hasFault ? [] : states) {
          const { windows: [, day] } = yield* limiter.peek(caller, { perMinute: 1_000, perDay: 9 })
          check(9 - day.remaining === (state.day?.used ?? 0), `the count of ${caller} without Redis`)
        }
        for (const uses of hasFault ? [] : turnsInOrder.flatMap((callers) => [...callers.values()])) {
          const present = uses.filter((use) => use !== undefined)
          check(
            present.every((use, index) => use > (present[index - 1] ?? 0)),
            `the order of calls is ${present.join()}`
          )
        }
        for (const [caller, count] of hasFault ? [] : allowed) {
          check(count <= 9, `Redis allowed ${caller} ${count} requests`)
        }
        assert.deepStrictEqual(problems, [])
      }))),
    { numRuns: 150, examples: [[manyCalls]] }
  ))
