/**
 * Simulates processes that share a Redis and a database, and clients of them, with faults and in all orders of events.
 * `SEEDS=1000000 npm run simulate` runs more seeds, and `SEED=7 npm run simulate` repeats one.
 */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Clock, Context, Duration, Effect, Exit, Layer, Logger, Random, Redacted, Scope } from "effect"
import { HttpClient, type HttpClientRequest, HttpClientResponse } from "effect/http"
import { inspect } from "node:util"
import * as KeyVerifier from "../../src/api-keys/KeyVerifier.ts"
import { withChecksum } from "../../src/api/SecretForm.ts"
import { PetstoreClient } from "../../src/client/PetstoreClient.ts"
import * as RequestBatcher from "../../src/database/RequestBatcher.ts"
import type { Caller } from "../../src/rate-limit/CallerStates.ts"
import type { Decision } from "../../src/rate-limit/Policy.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import * as RedisRateLimiter from "../../src/rate-limit/RedisRateLimiter.ts"
import { type Create, Database, isSharedTime, Redis } from "./Servers.ts"
import { Network, Process, World } from "./World.ts"

const limit = 5
const limits = { perMinute: 1_000_000, perDay: limit }
const processCount = 3
/** `REDIS_TIMEOUT_MS`. */
const redisTimeout = 250
const lookupTimeout = 900
const callTimeout = Duration.toMillis(RequestBatcher.callTimeout)
const clientTimeout = 15_000
/** Faults begin and end in this time, in milliseconds. */
const [faultsBegin, faultsEnd] = [500, 4_000]
/** Each call of that time has ended, and each probe of Redis. */
const settled = faultsEnd + clientTimeout + 1_000

const secrets = ["a", "b", "c"].map((letter) => withChecksum(letter.repeat(32)))

/** Runs the seed. Returns the promises that did not hold, and all outcomes. */
const simulate = async (seed: number) => {
  const world = new World(seed)
  const redis = new Redis(world)
  const database = new Database(world)
  const http = new Network(world)
  const problems: Array<string> = []
  const trace: Array<string> = []
  const expect = (condition: boolean, problem: string) =>
    condition || problems.push(`${world.now.toFixed(1)}: ${problem}`)
  const scope = Scope.makeUnsafe()
  const random = Context.make(Random.Random, {
    nextIntUnsafe: () => Math.floor(world.between(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)),
    nextDoubleUnsafe: world.random
  })
  const quiet = await Effect.runPromise(Effect.scoped(Layer.build(Logger.layer([]))))
  let open = 0

  /** Runs a call in a process, and checks that it ends within `bound` milliseconds, except for pauses. */
  const call = <A, E>(
    name: string,
    process: Process,
    bound: number,
    effect: Effect.Effect<A, E, Scope.Scope>,
    onEnd: (exit: Exit.Exit<A, E>) => void = () => {}
  ): void => {
    open++
    const context = Context.mergeAll(
      quiet,
      random,
      Context.make(Clock.Clock, process.clock),
      Context.make(Scope.Scope, scope)
    )
    const startedAt = world.now
    Effect.runFork(Effect.provideContext(effect, context)).addObserver((exit) => {
      open--
      trace.push(
        `${world.now} ${name} ${Exit.isSuccess(exit) ? inspect(exit.value, { depth: 1 }) : Cause.pretty(exit.cause)}`
      )
      expect(world.now - startedAt <= bound + process.paused + 0.001, `${name} took ${world.now - startedAt} ms`)
      expect(
        Exit.isSuccess(exit) || !Cause.hasDies(exit.cause),
        `${name} died: ${Exit.isFailure(exit) && Cause.pretty(exit.cause)}`
      )
      onEnd(exit)
    })
  }

  for (const [index, secret] of secrets.entries()) {
    const key = { id: `key_${index}`, plan: "enterprise", limits: { perMinute: 1_000_000, perDay: 1_000_000 } } as const
    database.keys.set(secret, { key, endsAt: Infinity, disabledAt: undefined })
  }

  const start = (process: Process) =>
    Effect.gen(function*() {
      const services = yield* Layer.build(Layer.fresh(RedisRateLimiter.layerWithoutClient)).pipe(
        Effect.provideService(RedisClient, redis.clientOf(process))
      )
      return {
        process,
        limiter: Context.get(services, RateLimiter),
        verifier: yield* KeyVerifier.make({ store: database.keyStoreOf(process), hash: (secret) => secret }),
        create: yield* RequestBatcher.make({
          name: "create",
          run: database.insertOf(process),
          concurrency: 1,
          size: 2,
          timeout: RequestBatcher.callTimeout
        })
      }
    })
  type Service = Effect.Success<ReturnType<typeof start>>
  const services: Array<Service> = []
  for (let i = 0; i < processCount; i++) {
    const process = new Process(world)
    call("start", process, 1_000, start(process), (exit) => Exit.isSuccess(exit) && services.push(exit.value))
  }
  await world.runUntil(() => services.length === processCount, faultsBegin)

  const counts = new Map<string, { shared: number; local: number; inEpisode: number }>()
  const countOf = (name: string) => {
    const count = counts.get(name) ?? { shared: 0, local: 0, inEpisode: 0 }
    counts.set(name, count)
    return count
  }
  const charge = ({ limiter, process }: Service, caller: Caller): void =>
    call(`charge ${caller}`, process, redisTimeout, limiter.charge(caller, limits), (exit) => {
      if (Exit.isFailure(exit)) return
      const { allowed, decidedAt }: Decision = exit.value
      const [own, all] = [
        countOf(`${services.findIndex((each) => each.process === process)} ${caller}`),
        countOf(caller)
      ]
      if (isSharedTime(decidedAt)) {
        own.inEpisode = 0
        all.shared += Number(allowed)
        expect(all.shared <= limit * redis.lives, `Redis allowed ${all.shared} requests of ${caller}`)
      } else {
        own.inEpisode += Number(allowed)
        all.local += 1
        expect(own.inEpisode <= limit, `a process allowed ${own.inEpisode} requests of ${caller} by itself`)
        all.inEpisode += Number(allowed)
      }
    })

  const verify = ({ process, verifier }: Service, secret: string): void =>
    call(`verify ${secret.slice(4, 5)}`, process, 2 * lookupTimeout, verifier.verify(Redacted.make(secret)), (exit) => {
      const disabledAt = database.keys.get(secret)?.disabledAt ?? Infinity
      if (Exit.isSuccess(exit)) {
        expect(world.now - disabledAt <= 1_000, `a key was accepted ${world.now - disabledAt} ms after its end`)
      } else if (secret === secrets[0]) {
        expect(!Cause.pretty(exit.cause).includes("InvalidApiKey"), "a valid key was rejected")
      }
    })

  /** Serves a create over HTTP, as the service does. */
  const serve = ({ create, limiter, verifier }: Service, { body, headers }: HttpClientRequest.HttpClientRequest) =>
    Effect.gen(function*() {
      const key = yield* verifier.verify(Redacted.make(headers.authorization?.replace("Bearer ", "") ?? ""))
      yield* limiter.charge(`key:${key.id}`, key.limits)
      const { name } = JSON.parse(body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : "")
      const request: Create = { name, idempotencyKey: headers["idempotency-key"] ?? "" }
      const id = (yield* create(request)) ?? -1
      return [201, JSON.stringify({ id, name: database.pets[id], categoryId: 1 })] as const
    }).pipe(
      Effect.catch(({ code, message, status }) =>
        Effect.succeed([status, JSON.stringify({ code, message, status })] as const)
      )
    )

  const user = new Process(world)
  const transport = HttpClient.make((request) =>
    Effect.callback((resume) => {
      http.send<readonly [number, string]>(
        user,
        (reply) => {
          const service = world.pick(services)
          service.process.at(world.now, () =>
            call(
              "serve",
              service.process,
              2 * lookupTimeout + redisTimeout + 2 * callTimeout,
              serve(service, request),
              (exit) => Exit.isSuccess(exit) && reply(exit.value)
            ))
        },
        ([status, body]) => {
          const headers = { "content-type": "application/json", ...status === 503 && { "retry-after": "1" } }
          resume(Effect.succeed(HttpClientResponse.fromWeb(request, new Response(body, { status, headers }))))
        },
        () => {}
      )
    })
  )
  let client: PetstoreClient["Service"] | undefined
  const options = {
    baseUrl: "http://petstore.test",
    apiKey: Redacted.make(secrets[0] ?? ""),
    timeout: clientTimeout,
    retry: { attemptTimeout: 2_000 }
  }
  const makeClient = Layer.build(Layer.fresh(PetstoreClient.layerHttp(options))).pipe(
    Effect.provideService(HttpClient.HttpClient, transport)
  )
  call("client", user, 0, makeClient, (exit) => {
    if (Exit.isSuccess(exit)) client = Context.get(exit.value, PetstoreClient)
  })
  const created = (name: string) => database.pets.filter((each) => each === name).length
  const create = (name: string, mustSucceed = false): void => {
    if (client === undefined) return
    call(`create ${name}`, user, clientTimeout, client.create({ name, categoryId: 1n }), (exit) => {
      expect(
        Exit.isSuccess(exit) ? created(name) === 1 : created(name) <= 1,
        `${name} is stored ${created(name)} times`
      )
      if (Exit.isSuccess(exit)) {
        expect(database.pets[Number(exit.value.id)] === name && exit.value.name === name, `${name} is another pet`)
      } else expect(!mustSucceed, `${name} failed after all faults: ${Cause.pretty(exit.cause)}`)
    })
  }

  // Faults.
  const during = (run: () => void) => world.at(world.between(faultsBegin, faultsEnd), run)
  const redisFault = world.pick(["none", "none", "frozen", "restarted", "failed over", "lossy"])
  const outage = world.between(50, 3_000)
  if (redisFault === "frozen") during(() => redis.network.freeze(outage))
  if (redisFault === "restarted" || redisFault === "failed over") {
    during(() => {
      redis.network.shutDown(outage)
      if (redisFault === "restarted") redis.restartEmpty()
      else redis.failOver()
    })
  }
  const networks = [http, database.network, ...redisFault === "lossy" ? [redis.network] : []]
  for (const network of networks) if (world.chance(0.5)) during(() => network.faults = world.between(0, 0.5))
  if (world.chance(0.3)) during(() => database.network.freeze(world.between(100, 3_000)))
  if (world.chance(0.3)) during(() => database.network.shutDown(world.between(100, 3_000)))
  for (const { process } of services) {
    if (world.chance(0.3)) during(() => process.pause(world.between(50, 1_500)))
    if (world.chance(0.3)) during(() => process.clockOffset += world.between(-3_600_000, 3_600_000))
  }
  if (world.chance(0.3)) during(() => redis.clockOffset += world.between(-3_600_000, 3_600_000))
  world.at(faultsEnd, () => networks.forEach((network) => network.faults = 0))

  // Load.
  const some = (count: number, run: (service: Service) => void) => {
    for (let i = 0; i < count; i++) {
      const service = world.pick(services)
      service.process.at(world.between(faultsBegin, faultsEnd + 1_000), () => run(service))
    }
  }
  some(40, (service) => charge(service, world.pick(["key:a", "key:a", "address:b"])))
  some(20, (service) => verify(service, world.pick(secrets)))
  for (const secret of secrets.slice(1)) {
    during(() => database.setEnabled(secret, false))
    if (world.chance(0.5)) during(() => database.setEnabled(secret, true))
  }
  for (let i = 0; i < 4; i++) during(() => create(`pet ${i}`))
  await world.runUntil(() => false, settled)

  // After the faults.
  expect(open === 0, `${open} calls have no end`)
  for (const caller of ["key:a", "address:b"]) {
    const { inEpisode, local, shared } = countOf(caller)
    if (redisFault === "none") expect(local === 0, `processes decided on ${local} requests of ${caller} by themselves`)
    if (redisFault !== "lossy") {
      const most = limit * (processCount + redis.lives)
      expect(shared + inEpisode <= most, `${caller} was allowed ${shared + inEpisode} requests in an outage`)
    }
  }
  for (const service of services) {
    call(
      "counting",
      service.process,
      0,
      service.limiter.counting,
      (exit) => expect(Exit.isSuccess(exit) && exit.value === "shared", "a process still counts by itself")
    )
    for (let i = 0; i < limit; i++) charge(service, "key:after")
    verify(service, secrets[0] ?? "")
  }
  create("last pet", true)
  await world.runUntil(() => open === 0, settled + 5_000)
  const { local, shared } = countOf("key:after")
  expect(
    shared === limit * 1 && local === 0,
    `${shared} requests were allowed after the faults, and ${local} decided without Redis`
  )
  for (let i = 0; i < 4; i++) expect(created(`pet ${i}`) <= 1, `pet ${i} is stored ${created(`pet ${i}`)} times`)
  Effect.runFork(Scope.close(scope, Exit.void))
  await world.runUntil(() => false, settled + 20_000)
  return { problems, trace }
}

describe("The simulation", () => {
  const [first, count] = process.env.SEED === undefined
    ? [1, Number(process.env.SEEDS ?? 1_000)]
    : [Number(process.env.SEED), 1]

  it(`keeps all promises with ${count} seeds from ${first} on`, { timeout: 60_000 + 100 * count }, async () => {
    for (let seed = first; seed < first + count; seed++) {
      const { problems } = await simulate(seed)
      assert.deepStrictEqual(problems, [], `SEED=${seed}`)
    }
  })

  it("repeats a seed exactly", async () => {
    assert.deepStrictEqual((await simulate(first)).trace, (await simulate(first)).trace)
  })
})
