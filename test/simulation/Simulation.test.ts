/**
 * Processes of the service with their real limiters, verifiers and repositories, and a real client, on fake servers.
 * `SEEDS=1000000 npm run simulate` runs more seeds, `SEED=7 npm run simulate` one.
 */
import { assert, it } from "@effect/vitest"
import {
  Cause,
  Clock,
  ConfigProvider,
  Context,
  Duration,
  Effect,
  Exit,
  Layer,
  Logger,
  Random,
  Redacted,
  Scope
} from "effect"
import { HttpClient, type HttpClientRequest, HttpClientResponse } from "effect/http"
import { SqlClient } from "effect/sql"
import { isDeepStrictEqual } from "node:util"
import * as KeyVerifier from "../../src/api-keys/KeyVerifier.ts"
import { InvalidApiKey } from "../../src/api/Errors.ts"
import type { Pet } from "../../src/api/Pets.ts"
import { withChecksum } from "../../src/api/Secrets.ts"
import { PetstoreClient } from "../../src/client/PetstoreClient.ts"
import * as Inserts from "../../src/collection/Inserts.ts"
import { redisMetrics } from "../../src/config/RedisSettings.ts"
import { BackgroundFailures } from "../../src/database/BackgroundFailures.ts"
import { toServiceUnavailable } from "../../src/http/RateLimit.ts"
import { PetRepository, pets as petsTable } from "../../src/pets/PetRepository.ts"
import type { Decision } from "../../src/rate-limit/Policy.ts"
import { type Caller, RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import * as RedisRateLimiter from "../../src/rate-limit/RedisRateLimiter.ts"
import { besideClient, sqlStores } from "../support/Databases.ts"
import { isShared, makeDatabase, makeRedis } from "./Servers.ts"
import { makeNetwork, makeProcess, makeWorld, type Process } from "./World.ts"

const limit = 3
const limits = (perDay: number) => ({ perMinute: 1_000_000, perDay })
const processCount = 3
/** The longest waits in milliseconds, from the start of each call. */
const [redisWait, lookupWait, statementWait, clientWait] = [250, 1_750, 3_000, 5_000]
const serveWait = lookupWait + redisWait + statementWait
/** The time of faults and load, and the time when all calls have ended. */
const [begin, end, settled] = [500, 4_000, 20_000]
const secrets = [withChecksum("a".repeat(32)), withChecksum("b".repeat(32)), withChecksum("c".repeat(32))] as const
const [clientSecret, ...disabledSecrets] = secrets
/** Runs a seed. Returns the promises that did not hold. */
const simulate = async (seed: number) => {
  const world = makeWorld(seed)
  const problems: Array<string> = []
  const database = makeDatabase(world, () => problems.push("pets of a process become visible out of order"))
  const [redis, http] = [makeRedis(world), makeNetwork(world)]
  // The caches of pets take 36 MB to make, so only one seed in 25 reads pets.
  const reads = seed % 25 === 0
  const check = (holds: boolean, problem: () => string) => {
    if (!holds) problems.push(`${world.now} ms: ${problem()}`)
  }
  const random = {
    nextDoubleUnsafe: () => world.between(0, 1),
    nextIntUnsafe: () => Math.floor(world.between(-(2 ** 31), 2 ** 31))
  }
  const shared = Context.make(Scope.Scope, Scope.makeUnsafe()).pipe(
    Context.add(Logger.CurrentLoggers, new Set()),
    Context.add(Random.Random, random)
  )
  let running = 0
  /** Runs a call in a process. It must end within `wait` and the pauses of the process, and not die. */
  const call = <A, E>(
    name: string,
    process: Process,
    wait: number,
    effect: Effect.Effect<A, E, Scope.Scope>,
    onEnd: (exit: Exit.Exit<A, E>) => void
  ): void => {
    running++
    const startedAt = world.now
    const context = Context.add(shared, Clock.Clock, process.clock)
    Effect.runFork(Effect.provideContext(Effect.withTracerEnabled(effect, false), context)).addObserver((exit) => {
      running--
      check(world.now - startedAt <= wait + process.paused + 0.001, () => `${name} took ${world.now - startedAt} ms`)
      check(Exit.isSuccess(exit) || !Cause.hasDies(exit.cause), () => `${name} died: ${String(exit)}`)
      onEnd(exit)
    })
  }
  const start = Effect.fnUntraced(function*(process: Process) {
    const limiters = Layer.fresh(
      RedisRateLimiter.layerWithoutClient({
        timeout: Duration.millis(redisWait),
        metrics: redisMetrics,
        logDown: () => Effect.void
      })
    )
    const context = yield* Effect.provideService(Layer.build(limiters), RedisClient, redis.clientOf(process))
    const store = {
      hash: (secret: string) => secret,
      recordUses: () => Effect.void,
      isInTransaction: () => false,
      findByHashes: database.findByHashesOf(process)
    }
    const sql = yield* database.sqlOf(process)
    const repository = Layer.fresh(sqlStores).pipe(
      Layer.provide([
        besideClient,
        Layer.succeed(SqlClient.SqlClient, sql),
        ConfigProvider.layer(ConfigProvider.fromUnknown({}))
      ])
    )
    return {
      process,
      limiter: Context.get(context, RateLimiter),
      verifier: yield* KeyVerifier.make(store).pipe(Effect.provide(BackgroundFailures.layerIgnored)),
      create: yield* Effect.provideService(Inserts.make(petsTable), SqlClient.SqlClient, sql),
      ...reads && { pets: Context.get(yield* Layer.build(repository), PetRepository) }
    }
  })
  type Service = Effect.Success<ReturnType<typeof start>>
  const services: Array<Service> = []
  for (let i = 0; i < processCount; i++) {
    const process = makeProcess(world)
    call("start", process, 1_000, start(process), (exit) => Exit.isSuccess(exit) && services.push(exit.value))
  }
  for (const [index, secret] of secrets.entries()) {
    const key = { id: `key_${index}`, plan: "enterprise", limits: limits(1_000_000) } as const
    database.keys.set(secret, { key, endsAt: Infinity })
  }
  await world.runUntil(() => services.length === processCount, begin)
  const decisions: Array<Decision & { readonly caller: Caller; readonly process: Process }> = []
  const charge = ({ limiter, process }: Service, caller: Caller): void =>
    call(`charge ${caller}`, process, redisWait, limiter.charge(caller, limits(limit)), (exit) => {
      if (Exit.isSuccess(exit)) decisions.push({ ...exit.value, caller, process })
    })
  const verify = ({ process, verifier }: Service, secret: string): void => {
    const startedAt = world.now
    call("verify", process, lookupWait, verifier.verify(Redacted.make(secret)), (exit) => {
      const disabledFor = startedAt - (database.disabled.get(secret) ?? startedAt)
      if (Exit.isSuccess(exit)) {
        check(disabledFor <= 1_000, () => `a request that begins ${disabledFor} ms after the end of its key is allowed`)
      } else check(secret !== clientSecret || !/KeyRejected/.test(String(exit)), () => "a valid key is rejected")
    })
  }
  const serve = ({ create, limiter, verifier }: Service, { body, headers }: HttpClientRequest.HttpClientRequest) =>
    Effect.gen(function*() {
      const verified = verifier.verify(Redacted.make((headers["authorization"] ?? "").slice("Bearer ".length)))
      const key = yield* Effect.catchTag(verified, "KeyRejected", () => Effect.fail(new InvalidApiKey()))
      yield* Effect.mapError(limiter.charge(`key:${key.id}`, key.limits), toServiceUnavailable)
      const { name } = JSON.parse(body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : "{}")
      const claim = { owner: key.id, key: headers["idempotency-key"] ?? "" }
      const { item: pet } = yield* create({ name, categoryId: 1n }, claim)
      return { status: 201, body: { id: Number(pet.id), name: pet.name, categoryId: 1 } }
    }).pipe(Effect.catch(({ code, message, status }) => Effect.succeed({ status, body: { code, message, status } })))
  const user = makeProcess(world)
  type Served = Effect.Success<ReturnType<typeof serve>>
  const transport = HttpClient.make((request) =>
    Effect.callback((resume) => {
      const serveLater = (reply: (response: Served) => void): void => {
        const service = world.pick(services)
        const onEnd = (exit: Exit.Exit<Served>) => Exit.isSuccess(exit) && reply(exit.value)
        service.process.after(0, () => call("serve", service.process, serveWait, serve(service, request), onEnd))
      }
      http.send<Served>(user, serveLater, ({ body, status }) => {
        const headers = { "content-type": "application/json", "location": "/v1/pets", "retry-after": "1" }
        const response = new Response(JSON.stringify(body), { status, headers })
        resume(Effect.succeed(HttpClientResponse.fromWeb(request, response)))
      }, () => {})
    })
  )
  const retry = { times: 5, attemptTimeout: 2_000 }
  const options = { baseUrl: "http://petstore.test", apiKey: Redacted.make(clientSecret), timeout: clientWait, retry }
  const client = Layer.fresh(PetstoreClient.layerHttp(options))
  let petstore: PetstoreClient["Service"] | undefined
  call("client", user, 0, Effect.provideService(Layer.build(client), HttpClient.HttpClient, transport), (exit) => {
    if (Exit.isSuccess(exit)) petstore = Context.get(exit.value, PetstoreClient)
  })
  const create = (name: string, mustSucceed: boolean): void => {
    if (petstore === undefined) return
    call(`create ${name}`, user, clientWait, petstore.create({ name, categoryId: 1n }), (exit) => {
      if (Exit.isSuccess(exit)) check(database.visible.get(exit.value.id)?.name === name, () => `${name} is not stored`)
      else check(!mustSucceed, () => `${name} was not created: ${String(exit)}`)
    })
  }
  const idsOfKeys = new Map<string, bigint>()
  /** Creates a pet in a process, which must have the id of the first create with its idempotency key. */
  const insert = ({ create, process }: Service, key?: string): void => {
    const pet = { name: key ?? "other", categoryId: 1n, status: "pending" } as const
    call("insert", process, statementWait, create(pet, key === undefined ? key : { owner: "key_0", key }), (exit) => {
      if (!Exit.isSuccess(exit)) return
      const { item: created } = exit.value
      check(isDeepStrictEqual(database.visible.get(created.id), created), () => `pet ${created.id} is not stored`)
      if (key === undefined) return
      const first = idsOfKeys.get(key) ?? created.id
      idsOfKeys.set(key, first)
      check(created.id === first, () => `a replay of pet ${first} returns pet ${created.id}`)
    })
  }
  /** Reads a page and a pet, which must have each pet that was visible before. */
  const read = ({ pets, process }: Service): void => {
    if (pets === undefined) return
    const visible = [...database.visible.values()]
    const isStored = (pet: Pet) => isDeepStrictEqual(pet, database.visible.get(pet.id))
    const after = BigInt(Math.floor(world.between(0, Math.min(9, Number(database.lastId()) + 1))))
    const status = world.chance(0.7) ? undefined : world.pick(["sold", "pending"] as const)
    call("list", process, statementWait, pets.list({ after, limit: world.pick([1, 2, 4]), status }), (exit) => {
      if (!Exit.isSuccess(exit)) return
      const { items: found, next } = exit.value
      const ids = found.map(({ id }) => id)
      const isPart = ({ id, status: own }: Pet) =>
        id > after && (next === undefined || id <= next) && (status === undefined || own === status)
      check(ids.every((id, index) => id > (ids[index - 1] ?? after)), () => `a page has the order ${ids.join()}`)
      check(found.every((pet) => isPart(pet) && isStored(pet)), () => `a page after ${after} has other pets`)
      check(visible.filter(isPart).every(({ id }) => ids.includes(id)), () => `the page ${ids.join()} lacks a pet`)
    })
    call("find", process, statementWait, pets.find(after), (exit) => {
      if (!Exit.isSuccess(exit)) return
      const pet = exit.value._tag === "Some" ? exit.value.value : undefined
      const isRight = pet === undefined ? visible.every(({ id }) => id !== after) : pet.id === after && isStored(pet)
      check(isRight, () => `pet ${after} is wrong or missing`)
    })
  }
  const during = (probability: number, run: () => void): void => {
    if (world.chance(probability)) world.at(world.between(begin, end), run)
  }
  const later = (): number => world.now + world.between(50, 3_000)
  const fault = world.pick(["none", "none", "frozen", "down", "lossy"])
  if (fault === "frozen") during(1, () => redis.network.frozenUntil = later())
  during(fault === "down" ? 1 : 0, () => {
    redis.network.downUntil = later()
    redis.restart(world.chance(0.5))
  })
  const networks = [http, database.network, ...fault === "lossy" ? [redis.network] : []]
  for (const network of networks) during(0.6, () => network.faults = world.between(0, 0.5))
  world.at(end, () => networks.forEach((network) => network.faults = 0))
  during(0.3, () => database.network.frozenUntil = later())
  during(0.3, () => database.network.downUntil = later())
  during(0.3, () => redis.clockOffset += world.between(-3_600_000, 3_600_000))
  for (const service of services) {
    // A pause begins with requests in flight.
    during(0.5, () => {
      verify(service, world.pick(secrets))
      charge(service, "key:a")
      for (const key of ["x", "y", undefined, "x", "z"]) insert(service, key)
      service.process.after(world.between(0, 10), () => service.process.pause(world.between(50, 1_500)))
    })
    during(0.3, () => service.process.clockOffset += world.between(-3_600_000, 3_600_000))
  }
  for (const secret of disabledSecrets) {
    during(1, () => database.disabled.set(secret, world.now))
    during(0.3, () => database.disabled.delete(secret))
  }
  const chargeOne = () => charge(world.pick(services), world.pick(["key:a", "key:a", "address:b"]))
  for (let i = 0; i < 30; i++) during(1, chargeOne)
  for (let i = 0; i < 14; i++) during(1, () => verify(world.pick(services), world.pick(secrets)))
  for (let i = 0; i < (reads ? 160 : 0); i++) during(1, () => read(world.pick(services)))
  for (let i = 0; i < 10; i++) {
    during(0.5, () => insert(world.pick(services), world.chance(0.4) ? undefined : world.pick(["x", "v", "w"])))
    during(0.5, () => database.write(world.pick([1, 2, 3]), world.between(0, 3_000)))
  }
  for (const name of ["Rex", "Tom"]) during(1, () => create(name, false))
  await world.runUntil(() => false, settled)
  check(running === 0, () => `${running} calls have no end`)
  for (const caller of ["key:a", "address:b"]) {
    const all = decisions.filter((decision) => decision.caller === caller)
    const allowed = all.filter((decision) => decision.allowed)
    check(fault !== "none" || all.every(isShared), () => `processes counted ${caller} alone without a reason`)
    check(allowed.filter(isShared).length <= limit * redis.lives, () => `Redis allowed ${caller} too many requests`)
    const most = limit * (processCount + redis.lives)
    check(fault === "lossy" || allowed.length <= most, () => `${caller} had ${allowed.length} requests in an outage`)
    for (const service of services) {
      let alone = 0
      for (const decision of all.filter(({ process }) => process === service.process)) {
        alone = isShared(decision) ? 0 : alone + Number(decision.allowed)
        check(alone <= limit, () => `a process allowed ${caller} ${alone} requests alone`)
      }
    }
  }
  const stored = [...database.visible.values()].map(({ name }) => name).filter((name) => name !== "other")
  check(new Set(stored).size === stored.length, () => `pets are stored twice: ${String(stored)}`)
  for (const service of services) {
    for (let i = 0; i < limit; i++) charge(service, "key:after")
    verify(service, clientSecret)
  }
  create("Last", true)
  await world.runUntil(() => running === 0, settled + clientWait)
  const after = decisions.filter(({ allowed, caller }) => allowed && caller === "key:after")
  check(after.length === limit && after.every(isShared), () => `${after.length} requests were allowed after the faults`)
  return problems
}

const { SEED = "1", SEEDS = process.env.SEED === undefined ? "300" : "1" } = process.env
const [first, count] = [Number(SEED), Number(SEEDS)]
const timeout = 60_000 + 100 * count

it("Processes, servers and a client keep their guarantees in any order of events and faults", { timeout }, async () => {
  for (let seed = first; seed < first + count; seed++) {
    assert.deepStrictEqual(await simulate(seed), [], `SEED=${seed} npm run simulate`)
  }
})
