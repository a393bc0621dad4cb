import { assert, describe, it } from "@effect/vitest"
import { Clock, DateTime, Duration, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpClient } from "effect/http"
import { TestClock } from "effect/testing"
import { InternalError, RateLimitExceeded, ServiceUnavailable } from "../../src/api/Errors.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { withMetadata } from "../../src/client/ClientCalls.ts"
import { PetstoreClientError, UndeclaredError, UnexpectedResponse, Unreachable } from "../../src/client/ClientError.ts"
import { PetstoreClient } from "../../src/client/PetstoreClient.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { ApiKeys, AuditLog, KeyUsage, KeyVerifier, PetRepository } from "../../src/testing.ts"
import { layerAdmin, layerMemory, layerService, layerTest, TestService } from "../../src/testing.ts"

const rex = { name: "Rex", categoryId: 1n, status: "available" } as const
const never = { retry: { times: 0, maxWait: 0 } }

describe("TestService", () => {
  it.effect("is separate for each layer, inserts pets, and reports the requests that the client has sent", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      const pets = yield* service.insertPets(rex, { name: "Łucja", categoryId: 9223372036854775807n })
      assert.deepStrictEqual((yield* client.list({ limit: 5 })).pets, pets)
      const inner = Effect.flatMap(PetstoreClient, ({ list }) => list())
      assert.isEmpty((yield* Effect.provide(inner, layerTest(never))).pets)
      yield* client.create(rex, { idempotencyKey: "a" })
      const [list, create] = yield* service.sentRequests
      assert.deepInclude(list, { method: "GET", path: "/v1/pets?limit=5", body: "", status: 200 })
      assert.deepInclude(create, { method: "POST", path: "/v1/pets", status: 201 })
      assert.strictEqual(create?.headers["idempotency-key"], "a")
      assert.isUndefined(create?.headers["authorization"])
      assert.deepStrictEqual(JSON.parse(create?.body ?? ""), { name: "Rex", categoryId: 1, status: "available" })
    }).pipe(Effect.provide(layerTest(never))))

  type Service = TestService["Service"]
  const recover = ({ recover }: Service) => recover
  const minute = () => TestClock.adjust("1 minute")
  const controls = [
    ["exhaustLimit", ({ exhaustLimit }: Service) => exhaustLimit, "RateLimitExceeded", minute],
    ["banKey", ({ banKey }: Service) => banKey, "ApiKeyBanned", minute],
    ["revokeKey", ({ revokeKey }: Service) => revokeKey, "InvalidApiKey", undefined],
    ["loseResponses", ({ loseResponses }: Service) => loseResponses(2), "Unreachable", recover],
    ["becomeUnavailable", (service: Service) => service.becomeUnavailable, "ServiceUnavailable", recover],
    ["becomeSlow", (service: Service) => service.becomeSlow("2 seconds"), "Unreachable", recover]
  ] as const
  it.effect.each(controls)("%s makes calls fail until it ends", ([, control, tag, end]) =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* client.list()
      yield* control(service)
      const listing = yield* Effect.forkChild(Effect.flip(client.list()))
      yield* TestClock.adjust("1 second")
      const error = yield* Fiber.join(listing)
      assert.strictEqual(error._tag === "PetstoreClientError" ? error.reason._tag : error._tag, tag)
      if (end !== undefined) yield* Effect.andThen(end(service), client.list())
    }).pipe(Effect.provide(layerTest({ ...never, timeout: 1_000 }))))

  it.effect("exhaustLimit uses up the day, without a ban, if the day has fewer requests left than the minute", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      for (let minute = 0; minute < 2; minute++) {
        yield* service.exhaustLimit
        assert.strictEqual((yield* Effect.flip(client.list()))._tag, "RateLimitExceeded")
        yield* TestClock.adjust("1 minute")
      }
    }).pipe(Effect.provide(layerTest({ ...never, plan: "enterprise", limits: { perMinute: 10, perDay: 10 } }))))

  it.effect("becomeUnavailable makes every call of the client fail with 503 and its wait", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* service.becomeUnavailable
      const calls = [client.list(), client.create(rex), client.get(1n)]
      for (const call of calls) {
        const error = yield* Effect.flip<unknown, unknown, never>(call)
        assert.deepInclude(error, { _tag: "ServiceUnavailable", status: 503, retryAfter: Duration.seconds(1) })
      }
    }).pipe(Effect.provide(layerTest(never))))

  it.effect("runs the effect of the API key before each attempt, and controls the key that it returns", () => {
    let current = Redacted.make("psk_none")
    return Effect.gen(function*() {
      const [client, service, keys] = [yield* PetstoreClient, yield* TestService, yield* ApiKeys]
      assert.strictEqual((yield* Effect.flip(client.list()))._tag, "InvalidApiKey")
      const issued = yield* keys.issue({ name: "test", plan: "free" })
      current = issued.key
      yield* client.list()
      yield* service.revokeKey
      assert.isNotNull((yield* keys.find(issued.id)).revokedAt)
    }).pipe(Effect.provide(layerTest({ ...never, apiKey: Effect.sync(() => current) })))
  })

  it.effect("loses responses, and the default retries still create only one pet", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      yield* service.loseResponses(2)
      const creating = yield* Effect.forkChild(withMetadata(client.create(rex)))
      yield* TestClock.adjust("1 minute")
      const [, { isReplayed }] = yield* Fiber.join(creating)
      assert.isTrue(isReplayed, "the request of a lost response is served")
      assert.deepStrictEqual((yield* service.sentRequests).map(({ status }) => status), [undefined, undefined, 201])
      assert.lengthOf((yield* client.list()).pets, 1)
    }).pipe(Effect.provide(layerTest())))

  it.effect("makes the next requests fail with any errors", () =>
    Effect.gen(function*() {
      const [client, service] = [yield* PetstoreClient, yield* TestService]
      const facts = { requestId: "7", retryAfter: Duration.seconds(3) }
      const undeclared = new UndeclaredError({ code: "later", message: "Later.", status: 599 })
      const proxy = new UnexpectedResponse({ message: "A proxy.", status: 502 })
      const errors = [
        [new InternalError({ message: "Broken." }), { _tag: "InternalError", message: "Broken." }],
        [new PetstoreClientError({ reason: undeclared, ...facts }), { reason: undeclared, ...facts }],
        [new PetstoreClientError({ reason: proxy }), { reason: { _tag: "UnexpectedResponse", status: 502 } }],
        [new PetstoreClientError({ reason: new Unreachable({ message: "cut" }) }), { reason: { _tag: "Unreachable" } }],
        [new ServiceUnavailable(facts), { _tag: "ServiceUnavailable", ...facts }],
        // From then on the client waits.
        [new RateLimitExceeded(facts), { _tag: "RateLimitExceeded", ...facts }]
      ] as const
      for (const [error] of errors) yield* service.failNext(error)
      for (const [, expected] of errors) assert.containsSubset(yield* Effect.flip(client.list()), expected)
      yield* TestClock.adjust("4 seconds")
      assert.lengthOf((yield* client.list()).pets, 0)
    }).pipe(Effect.provide(layerTest(never))))
})

it.effect("layerTest sleeps at most once a minute while no call waits, and never before the first call", () =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    let sleeps = 0
    const sleep = (duration: Duration.Duration) => {
      sleeps++
      return clock.sleep(duration)
    }
    const counting: Clock.Clock = Object.assign(Object.create(clock), { sleep })
    yield* Effect.gen(function*() {
      const client = yield* PetstoreClient
      sleeps = 0
      yield* TestClock.adjust("1 day")
      assert.strictEqual(sleeps, 0)
      yield* client.list()
      sleeps = 0
      yield* TestClock.adjust("1 day")
      assert.isAtMost(sleeps, 24 * 60 + 1)
      yield* TestClock.setTime(Date.UTC(2030, 0))
      yield* client.list()
    }).pipe(Effect.provide(layerTest()), Effect.provideService(Clock.Clock, counting))
  }))

it.effect("layerTest uses the layers that replace its own", () => {
  const zero = Effect.map(
    RateLimiter,
    (own) => RateLimiter.of({ ...own, charge: (caller) => own.charge(caller, { perMinute: 0, perDay: 0 }) })
  )
  const rateLimiter = Layer.provide(Layer.effect(RateLimiter, zero), RateLimiter.layerMemory)
  const verifier = { verify: () => Effect.fail(new ServiceUnavailable()), evict: () => Effect.void }
  const memory = Layer.provide(ApiKeys.layerMemory, SecureRandom.layerWebCrypto)
  const apiKeys = Layer.provideMerge(Layer.succeed(KeyVerifier, verifier), memory)
  const tag = Effect.map(Effect.flatMap(PetstoreClient, ({ list }) => Effect.flip(list())), ({ _tag }) => _tag)
  return Effect.gen(function*() {
    assert.strictEqual(yield* Effect.provide(tag, layerTest({ ...never, rateLimiter })), "RateLimitExceeded")
    assert.strictEqual(yield* Effect.provide(tag, layerTest({ ...never, apiKeys })), "ServiceUnavailable")
    const client = Effect.flatMap(PetstoreClient, ({ list }) => list())
    yield* Effect.provide(client, layerTest({ ...never, apiKeys: ApiKeys.layerMemory }))
    const own = { ...rex, id: 7n }
    const list = () => Effect.succeed({ items: [own] })
    const pets = Layer.effect(PetRepository, Effect.map(PetRepository, (others) => ({ ...others, list })))
    const withPets = layerTest({ ...never, pets: Layer.provide(pets, PetRepository.layerMemory) })
    assert.deepStrictEqual((yield* Effect.provide(client, withPets)).pets, [own])
  })
})

it.effect("layerAdmin manages the keys of layerTest, and reads their usage, bans and audit log", () =>
  Effect.gen(function*() {
    const [admin, client, service] = [yield* AdminClient, yield* PetstoreClient, yield* TestService]
    yield* client.list()
    const id = (yield* admin.list()).keys[0]?.id ?? ""
    assert.containsSubset(yield* admin.usage(id), { minutes: [{ allowed: 1, rejected: 0 }], hours: [{ allowed: 1 }] })
    yield* service.banKey
    assert.containsSubset(yield* admin.get(id), { plan: "free", ban: {} })
    yield* admin.unban(id)
    yield* admin.update(id, { enabled: false })
    assert.strictEqual((yield* Effect.flip(client.list()))._tag, "InvalidApiKey")
    const { entries } = yield* admin.audit({ key: id })
    const actions = entries.flatMap(({ action, operator }) => [action, operator])
    assert.deepStrictEqual(actions, ["update", "test", "unban", "test", "issue", null])
    assert.containsSubset(yield* Effect.flip(admin.get("key_none")), { _tag: "NotFound", status: 404 })
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("A key is listed as banned until its ban ends, also if that takes longer than a minute", () =>
  Effect.gen(function*() {
    const [admin, service, audit] = [yield* AdminClient, yield* TestService, yield* AuditLog]
    const banned = Effect.map(admin.list({ state: "banned" }), ({ keys }) => keys.map(({ id }) => id))
    const keyId = (yield* admin.list()).keys[0]?.id ?? ""
    yield* service.banKey
    yield* TestClock.adjust("1 minute")
    // The second ban takes two minutes.
    yield* service.banKey
    yield* audit.recordBan({ keyId, address: "::1", at: 60_000, until: 180_000 })
    yield* TestClock.adjust("119 seconds")
    assert.deepStrictEqual(yield* banned, [keyId])
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(yield* banned, [])
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("A deleted key has no name and no plan in the audit log and among the keys with the most requests", () =>
  Effect.gen(function*() {
    const admin = yield* AdminClient
    const [keyId, counts] = ["key_gone", { allowed: 1, rejected: 0, banned: 0 }]
    yield* (yield* AuditLog).recordBan({ keyId, address: "::1", at: 0, until: 60_000 })
    const usage = yield* KeyUsage
    usage.count(keyId, "allowed", 0)
    yield* TestClock.adjust("1 second")
    assert.containsSubset((yield* admin.audit()).entries[0], { action: "ban", keyId, keyName: null, operator: null })
    assert.deepStrictEqual(yield* admin.topUsage(), [{ keyId, name: null, plan: null, ...counts }])
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("rotate keeps the former secret for the grace period, and by default ends it", () =>
  Effect.gen(function*() {
    const admin = yield* AdminClient
    const { id } = yield* admin.issue({ name: "shop", plan: "free" })
    const ends = Effect.map(admin.get(id), ({ formerSecrets }) => formerSecrets.map(({ endsAt }) => endsAt))
    const endsAt = DateTime.add(yield* DateTime.now, { hours: 1 })
    yield* admin.rotate(id, { gracePeriod: "1 hour" })
    assert.deepStrictEqual(yield* ends, [endsAt])
    yield* admin.endFormerSecrets(id)
    assert.isEmpty(yield* ends)
    yield* admin.rotate(id, { gracePeriod: "1 hour" })
    yield* admin.rotate(id)
    assert.isEmpty(yield* ends)
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("whose finds the key of a secret that works, and none for an unknown secret", () =>
  Effect.gen(function*() {
    const admin = yield* AdminClient
    const issued = yield* admin.issue({ name: "shop", plan: "free" })
    const found = Option.getOrThrow(yield* admin.whose(issued.key))
    assert.containsSubset(found, { id: issued.id, name: "shop", secret: { works: true, endsAt: null } })
    assert.deepStrictEqual(yield* admin.whose(Redacted.make("psk_none")), Option.none())
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("Lists have 20 items by default, and the list of the keys with the most requests has 10", () =>
  Effect.gen(function*() {
    const [admin, client, service] = [yield* AdminClient, yield* PetstoreClient, yield* TestService]
    const usage = yield* KeyUsage
    yield* service.insertPets(...Array.from({ length: 21 }, () => rex))
    const issued = yield* Effect.replicateEffect(admin.issue({ name: "a", plan: "free" }), 21)
    for (const { id } of issued) usage.count(id, "allowed", 0)
    const [{ pets }, { keys }, { entries }] = [yield* client.list(), yield* admin.list(), yield* admin.audit()]
    const top = yield* admin.topUsage()
    assert.deepStrictEqual([pets, keys, entries, top].map(({ length }) => length), [20, 20, 20, 10])
    assert.lengthOf(yield* admin.topUsage({ limit: 3 }), 3)
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest(never)))))

it.effect("layerTest issues a key of the plan Enterprise with the given limits", () =>
  Effect.gen(function*() {
    const { keys } = yield* Effect.flatMap(AdminClient, ({ list }) => list())
    const issued = keys.map(({ limits, plan }) => ({ limits, plan }))
    assert.deepStrictEqual(issued, [{ limits: { perMinute: 2, perDay: 3 }, plan: "enterprise" }])
  }).pipe(Effect.provide(Layer.provideMerge(layerAdmin, layerTest({ ...never, limits: { perMinute: 2, perDay: 3 } })))))

it.effect("layerService serves no documents", () =>
  Effect.gen(function*() {
    for (const path of ["/", "/docs", "/openapi.json"]) {
      const response = yield* HttpClient.get(`http://petstore.test${path}`)
      const message = "No such path. Paths are case-sensitive and begin with /v1."
      assert.deepStrictEqual(yield* response.json, { code: "not_found", message, status: 404 })
    }
  }).pipe(Effect.provide(Layer.provide(layerService, layerMemory))))
