import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Duration, Effect, Layer } from "effect"
import type { Caller } from "../../src/rate-limit/RateLimiter.ts"
import { slotOf } from "../../src/rate-limit/RedisClient.ts"
import { until, untilTrue } from "../support/Process.ts"
import * as Proxy from "../support/Proxy.ts"
import * as Redis from "../support/Redis.ts"
import { freePort } from "../support/Temporary.ts"
import * as Limiters from "./Limiters.ts"

// No test lasts for a day, however slow the machine is.
const few = { perMinute: 5, perDay: 5 }

const Server = Context.Service<Redis.RedisServer>("test/rate-limit/Server")

const twoLimiters = Effect.flatMap(Server, ({ url }) => Limiters.makeTwo(url))

type Fault = (server: Redis.RedisServer) => readonly [begin: Effect.Effect<unknown>, end: Effect.Effect<unknown>]
const signal = (server: Redis.RedisServer, name: NodeJS.Signals) => Effect.sync(() => process.kill(server.pid(), name))
const replicaOf = ({ port }: Redis.RedisServer, ...master: ReadonlyArray<string>) =>
  Redis.command(port, "REPLICAOF", ...master)

/** Faults, and what Redis still allows afterwards, of 20 requests, of which it has counted 5. */
const faults: ReadonlyArray<readonly [name: string, Fault, left: number]> = [
  ["is killed and comes back empty", ({ kill, start }) => [kill, start], 20],
  ["is frozen", (server) => [signal(server, "SIGSTOP"), signal(server, "SIGCONT")], 15],
  ["is a replica", (server) => [replicaOf(server, "127.0.0.1", "1"), replicaOf(server, "NO", "ONE")], 15]
]

describe.skipIf(!Redis.isInstalled)("RateLimiter on one Redis", () => {
  layer(Layer.effect(Server, Redis.runStarted()), { excludeTestServices: true })((it) => {
    for (const [name, fault, left] of faults) {
      it.effect(`allows each process the rest of the limit that it knows while Redis ${name}`, () =>
        Effect.gen(function*() {
          const [begin, end] = fault(yield* Server)
          const limiters = yield* twoLimiters
          const [one, other] = limiters
          const [used, banned] = [`key:used ${name}`, `key:banned ${name}`] as const
          const countAllowed = Effect.fnUntraced(function*({ charge }: Limiters.Limiter, requests: number) {
            const limits = { perMinute: 1_000_000, perDay: 20 }
            const decisions = yield* Effect.replicateEffect(charge(used, limits), requests)
            return decisions.filter(({ allowed }) => allowed).length
          })
          assert.deepStrictEqual([yield* countAllowed(one, 2), yield* countAllowed(other, 3)], [2, 3])
          yield* Effect.replicateEffect(one.charge(banned, few), 30)
          assert.strictEqual(yield* Limiters.countLocalDecisions(limiters), 0)
          yield* begin
          // The breaker opens at a request.
          const late = limiters.map(({ charge }) => charge("key:late", few))
          const [slow] = yield* Effect.timed(Effect.all(late, { concurrency: "unbounded" }))
          yield* Limiters.untilAll("fallback", limiters)
          const [fast] = yield* Effect.timed(Effect.replicateEffect(one.charge("key:fast", few), 100))
          // The wait of 250 ms, on a busy machine.
          for (const waited of [slow, fast]) assert.isBelow(Duration.toMillis(waited), 1_000)
          assert.deepStrictEqual([yield* countAllowed(one, 40), yield* countAllowed(other, 40)], [18, 15])
          assert.isDefined((yield* one.charge(banned, few)).bannedUntil)
          assert.isUndefined((yield* other.charge(banned, few)).bannedUntil)
          yield* end
          yield* Limiters.untilAll("shared", limiters)
          assert.strictEqual((yield* countAllowed(one, 40)) + (yield* countAllowed(other, 40)), left)
          yield* Limiters.assertExact(limiters, [`key:after ${name}`])
        }))
    }

    it.effect("lifts a ban in this process alone while Redis does not reply", () =>
      Effect.gen(function*() {
        const proxy = yield* Proxy.run((yield* Server).port)
        const [near] = yield* twoLimiters
        const limiter = yield* Limiters.make(`redis://127.0.0.1:${proxy.port}`)
        const isBanned = ({ peek }: Limiters.Limiter) =>
          Effect.map(peek("key:lifted", few), ({ bannedUntil }) => bannedUntil !== undefined)
        yield* Limiters.untilAll("shared", [limiter])
        yield* Effect.replicateEffect(limiter.charge("key:lifted", few), 10)
        proxy.setFault("refusing")
        yield* isBanned(limiter)
        yield* Limiters.untilAll("fallback", [limiter])
        yield* limiter.unban("key:lifted")
        assert.strictEqual(yield* limiter.counting, "fallback")
        assert.deepStrictEqual([yield* isBanned(limiter), yield* isBanned(near)], [false, true])
        proxy.setFault(undefined)
        yield* Limiters.untilAll("shared", [limiter])
        assert.isTrue(yield* isBanned(limiter))
        yield* limiter.unban("key:lifted")
        assert.isFalse(yield* isBanned(near))
      }))

    it.effect("counts in the database that the URL names", () =>
      Effect.gen(function*() {
        const { port, url } = yield* Server
        const [one, other] = [yield* Limiters.make(url), yield* Limiters.make(`${url}/1`)]
        yield* Limiters.untilAll("shared", [one, other])
        yield* Effect.replicateEffect(one.charge("key:both", few), 5)
        assert.isTrue((yield* other.charge("key:both", few)).allowed)
        // Redis deletes the counts a day after the end of their day.
        const ttl = Number(yield* Redis.command(port, "PTTL", "petstore:limits:key:both"))
        assert.approximately(ttl, 2 * 86_400_000, 60_000)
      }))

    it.effect("starts with one log line, and counts on its own, until Redis responds and accepts its user", () =>
      Effect.gen(function*() {
        const { port } = yield* Server
        const proxy = yield* Proxy.run(port)
        proxy.setFault("hanging")
        const hanging = yield* Limiters.make(`redis://127.0.0.1:${proxy.port}`)
        const permissions = "~petstore:limits:* -@all +ping +hello +select +set +get +time +eval +evalsha"
        const connect = Effect.fnUntraced(function*(user: string, password: string, allowed: string) {
          yield* Redis.command(port, "ACL", "SETUSER", user, "on", ">secret", ...allowed.split(" "))
          return yield* Limiters.make(`redis://${user}:${password}@127.0.0.1:${port}`)
        })
        yield* Limiters.untilAll("shared", [yield* connect("petstore", "secret", permissions)])
        const starts = [
          [hanging, ""],
          [yield* Limiters.make(`redis://127.0.0.1:${yield* freePort}`), "ECONNREFUSED"],
          [yield* connect("petstore", "wrong", permissions), "WRONGPASS"],
          [yield* connect("reader", "secret", permissions.replace("+set ", "")), "permission|can't run"],
          [yield* connect("scriptless", "secret", permissions.replace(" +eval +evalsha", "")), "NOPERM"]
        ] as const
        for (const [limiter, reason] of starts) {
          assert.isTrue((yield* limiter.charge("key:early", few)).allowed)
          assert.strictEqual(yield* limiter.counting, "fallback")
          yield* until(() => limiter.log.length > 0)
          assert.lengthOf(limiter.log, 1)
          assert.match(limiter.log[0] ?? "", new RegExp(`^REDIS_URL: Redis cannot be used.*(?:${reason})`))
          assert.notInclude(limiter.log[0], "secret")
        }
        proxy.setFault(undefined)
        yield* Limiters.untilAll("shared", [hanging])
        assert.deepStrictEqual(hanging.log.slice(1), ["Requests are counted in Redis"])
      }))
  })
})

/** Few enough that each process and each master uses them up in an outage. */
const limit = 40

const callersNamed = (name: string, length: number) =>
  Array.from({ length }, (_, index): Caller => `key:${name}-${index}`)

/** Charges callers through both limiters during `failover`, and until they have used their limits of a day. */
const loadUntilUsedUp = Effect.fnUntraced(function*<E>(
  limiters: readonly [Limiters.Limiter, Limiters.Limiter],
  callers: ReadonlyArray<Caller>,
  failover: Effect.Effect<unknown, E>,
  perDay = limit
) {
  const limits = { perMinute: 1_000_000, perDay }
  const allowed = new Map(callers.map((caller) => [caller, 0]))
  // Uninterruptible: the end of the load loses no decision.
  const charge = (limiter: Limiters.Limiter, caller: Caller) =>
    Effect.map(limiter.charge(caller, limits), (decision) => {
      if (decision.allowed) allowed.set(caller, (allowed.get(caller) ?? 0) + 1)
    }).pipe(Effect.uninterruptible, Effect.andThen(Effect.sleep("20 millis")))
  const charges = limiters.flatMap((limiter) => callers.map((caller) => Effect.forever(charge(limiter, caller))))
  const isUsedUp = (caller: Caller) => Effect.map(limiters[0].peek(caller, limits), ({ allowed }) => !allowed)
  const untilUsedUp = Effect.forEach(callers, (caller) => untilTrue(isUsedUp(caller)))
  yield* Effect.raceFirst(Effect.andThen(failover, untilUsedUp), Effect.all(charges, { concurrency: "unbounded" }))
  return allowed
})

/** The time without a reply after which a node or a sentinel takes a server for failed. */
const failureTimeoutMs = 1000

const password = "secret"
/** The permissions that docs/redis.md names. */
const clusterPermissions =
  "~petstore:limits:* -@all +ping +hello +select +set +get +time +eval +evalsha +cluster|slots +asking"
const sentinelPermissions = "&* -@all +ping +hello +sentinel|master +sentinel|replicas +sentinel|sentinels +psubscribe"
const user = ["--user", "petstore", "on", `>${password}`, ...clusterPermissions.split(" ")]

const slots = ["0-5460", "5461-10922", "10923-16383"]

type Node = Redis.RedisServer & { readonly id: string }

const untilReply = (reply: Effect.Effect<string>, text: string) =>
  untilTrue(Effect.map(reply, (found) => found.includes(text)), text, 30)

/** Runs three masters, and three replicas. Their files describe the whole cluster, so it is complete from the start. */
const runCluster = Effect.gen(function*() {
  const ports = yield* Effect.replicateEffect(Effect.all({ port: freePort, busPort: freePort }), 6)
  const idOf = (index: number): string => String(index).repeat(40)
  const describeNode = (self: number) => ({ busPort, port }: (typeof ports)[number], index: number): string => {
    const role = index < 3 ? "master -" : `slave ${idOf(index - 3)}`
    const flags = index === self ? `myself,${role}` : role
    return `${idOf(index)} 127.0.0.1:${port}@${busPort} ${flags} 0 0 ${index % 3 + 1} connected ${slots[index] ?? ""}`
      .trim()
  }
  const nodes = yield* Effect.forEach(ports, ({ busPort, port }, index) => {
    const lines = [...ports.map(describeNode(index)), "vars currentEpoch 3 lastVoteEpoch 0", ""]
    const settings =
      `--cluster-enabled yes --cluster-config-file nodes.conf --cluster-port ${busPort} --repl-diskless-sync-delay 0 ` +
      `--cluster-node-timeout ${failureTimeoutMs} --cluster-require-full-coverage no`
    const files = { "nodes.conf": lines.join("\n") }
    const server = Redis.runStarted({ port, files, arguments: [...settings.split(" "), ...user] })
    return Effect.map(server, (server): Node => ({ ...server, id: idOf(index) }))
  }, { concurrency: "unbounded" })
  for (const { port } of nodes) yield* untilReply(Redis.command(port, "CLUSTER", "INFO"), "cluster_state:ok")
  const replicas = nodes.slice(3)
  for (const { port } of replicas) yield* untilReply(Redis.command(port, "INFO", "replication"), "link_status:up")
  return {
    masters: nodes.slice(0, 3) as [Node, Node, Node],
    replicas,
    url: `redis+cluster://petstore:${password}@${nodes.map(({ port }) => `127.0.0.1:${port}`).join(",")}`
  }
})

/** Runs a master, a replica of it, and three sentinels. All of them need passwords. */
const runWithSentinels = Effect.gen(function*() {
  const args = ["--requirepass", password, "--masterauth", password, "--repl-diskless-sync-delay", "0", ...user]
  const master = yield* Redis.runStarted({ arguments: args })
  const replica = yield* Redis.runStarted({ arguments: [...args, "--replicaof", `127.0.0.1 ${master.port}`] })
  const ask = (port: number, ...line: ReadonlyArray<string>) =>
    Redis.command(port, "--no-auth-warning", "-a", password, ...line)
  yield* untilReply(ask(replica.port, "INFO", "replication"), "link_status:up")

  const lines = [
    `requirepass ${password}`,
    `user petstore on >${password} ${sentinelPermissions}`,
    `sentinel sentinel-pass ${password}`,
    `sentinel monitor pets 127.0.0.1 ${master.port} 2`,
    `sentinel auth-pass pets ${password}`,
    `sentinel down-after-milliseconds pets ${failureTimeoutMs}`,
    "sentinel failover-timeout pets 5000"
  ]
  const sentinels = yield* Effect.replicateEffect(Redis.runSentinel(lines.join("\n")), 3)
  const ports = sentinels.map(({ port }) => port)
  for (const port of ports) {
    const state = ask(port, "SENTINEL", "MASTER", "pets")
    yield* untilReply(state, "num-other-sentinels\n2")
    yield* untilReply(state, "num-slaves\n1")
  }
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(",")
  const parameters = `sentinel_username=petstore&sentinel_password=${password}`
  return { master, replica, sentinels, ask, url: `redis+sentinel://petstore:${password}@${hosts}/pets/1?${parameters}` }
})

describe.skipIf(!Redis.isInstalled)("RateLimiter on Redis Sentinel", () => {
  it.live("counts on its own until the replica is promoted, then in the new master, and never in the old one", () =>
    Effect.gen(function*() {
      const { ask, master, replica, url } = yield* runWithSentinels
      const limiters = yield* Limiters.makeTwo(url)
      yield* Limiters.assertExact(limiters, callersNamed("before", 5))
      const failover = Effect.gen(function*() {
        yield* master.kill
        yield* Limiters.untilAll("fallback", limiters)
        yield* Limiters.untilAll("shared", limiters)
        assert.match(yield* ask(replica.port, "ROLE"), /^master/)
      })
      const allowed = yield* loadUntilUsedUp(limiters, callersNamed("busy", 5), failover)
      // Each process allows at most its limit by itself, and so does each master.
      for (const [caller, count] of allowed) assert.isAtMost(count, limit * (limiters.length + 2), caller)
      // The old master starts as a master. The sentinels make it a replica ten seconds later.
      yield* master.start
      yield* Limiters.assertExact(limiters, callersNamed("after", 5))
      // The database of the URL, and no other.
      assert.match(yield* ask(replica.port, "INFO", "keyspace"), /^# Keyspace\s+db1:\S+\s*$/)
      assert.notInclude(yield* ask(master.port, "INFO", "commandstats"), "cmdstat_evalsha")
    }))
})

const sentinelTitle =
  "RateLimiter on Redis Sentinel stays within the worst case without sentinels, and is exact after it"
it.live.skipIf(!Redis.isInstalled)(sentinelTitle, () =>
  Effect.gen(function*() {
    const { sentinels, url } = yield* runWithSentinels
    const limiters = yield* Limiters.makeTwo(url)
    const killAll = Effect.forEach(sentinels, ({ kill }) => kill)
    const allowed = yield* loadUntilUsedUp(limiters, callersNamed("no-sentinel", 5), killAll)
    // Redis lost no counts, and each process counted alone at most once.
    for (const [caller, count] of allowed) assert.isAtMost(count, limit * (limiters.length + 1), caller)
    yield* Effect.forEach(sentinels, ({ start }) => start)
    yield* untilTrue(
      Effect.map(Effect.forEach(limiters, ({ counting }) => counting), (all) => all.every((now) => now === "shared")),
      "the limiters use Redis again",
      30
    )
    yield* Limiters.assertExact(limiters, callersNamed("back", 3))
  }))

const oneSentinelTitle =
  "RateLimiter on Redis Sentinel is exact while sentinels end one after the other, as long as one of three is left"
it.live.skipIf(!Redis.isInstalled)(oneSentinelTitle, () =>
  Effect.gen(function*() {
    const { sentinels, url } = yield* runWithSentinels
    const limiters = yield* Limiters.makeTwo(url)
    // The client is connected to the first sentinel that it reaches, so each of these two once.
    const killTwo = Effect.forEach(sentinels.slice(0, 2), ({ kill }) => Effect.delay(kill, "500 millis"))
    // Enough for longer than both take.
    const allowed = yield* loadUntilUsedUp(limiters, callersNamed("one-sentinel", 5), killTwo, 150)
    assert.deepStrictEqual([...allowed.values()], [...allowed].map(() => 150))
    assert.strictEqual(yield* Limiters.countLocalDecisions(limiters), 0)
    yield* Limiters.assertExact(limiters, callersNamed("one-sentinel-left", 3))
  }))

const Cluster = Context.Service<Effect.Success<typeof runCluster>>("test/rate-limit/Cluster")

const slotOfCaller = (caller: Caller) => slotOf(`petstore:limits:${caller}`)

/** So many callers of each master that a cluster starts with. */
const callersOfMasters = (name: string, perMaster: number) => {
  const all = callersNamed(name, 100 * perMaster)
  const masterOf = (caller: Caller) => Math.min(2, Math.floor(slotOfCaller(caller) / 5461))
  return [0, 1, 2].map((master) => all.filter((caller) => masterOf(caller) === master).slice(0, perMaster))
}

describe.skipIf(!Redis.isInstalled)("RateLimiter on a Redis cluster", () => {
  layer(Layer.effect(Cluster, runCluster), { excludeTestServices: true })((it) => {
    const twoLimiters = Effect.flatMap(Cluster, ({ url }) => Limiters.makeTwo(url))

    it.effect("does not start with a plain URL, which names only one node", () =>
      Effect.gen(function*() {
        const { masters: [{ port }] } = yield* Cluster
        const limiter = yield* Limiters.make(`redis://petstore:secret@127.0.0.1:${port}`)
        for (const caller of callersOfMasters("plain", 1).flat()) yield* limiter.charge(caller, few)
        assert.strictEqual(yield* limiter.counting, "fallback")
      }))

    it.effect("allows exactly the limit while slots move between masters", () =>
      Effect.gen(function*() {
        const { masters: [from, to, other] } = yield* Cluster
        const limiters = yield* twoLimiters
        const [callers = []] = callersOfMasters("moved", 10)
        const moveSlots = Effect.gen(function*() {
          for (const slot of new Set(callers.map((caller) => String(slotOfCaller(caller))))) {
            yield* Redis.command(to.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id)
            yield* Redis.command(from.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
            const keys = (yield* Redis.command(from.port, "CLUSTER", "GETKEYSINSLOT", slot, "100")).split("\n")
            for (const key of keys.filter((each) => each !== "")) {
              yield* Redis.command(from.port, "MIGRATE", "127.0.0.1", String(to.port), key, "0", "1000")
            }
            for (const { port } of [to, from, other]) {
              yield* Redis.command(port, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
            }
          }
        })
        // Enough for requests during each move.
        const allowed = yield* loadUntilUsedUp(limiters, callers, moveSlots, 400)
        assert.deepStrictEqual([...allowed.values()], callers.map(() => 400))
        assert.strictEqual(yield* Limiters.countLocalDecisions(limiters), 0)
      }))

    for (const [replacement, index] of [["an operator promotes", 2], ["takes over from a killed master", 1]] as const) {
      it.effect(`counts in the replica that ${replacement}, and always in Redis for callers of other masters`, () =>
        Effect.gen(function*() {
          const { masters, replicas } = yield* Cluster
          const limiters = yield* twoLimiters
          const groups = callersOfMasters(replacement, 5)
          const replica = replicas[index]?.port ?? 0
          const isPlanned = replacement === "an operator promotes"
          const begin = isPlanned ? Redis.command(replica, "CLUSTER", "FAILOVER") : masters[index].kill
          const isMaster = Effect.map(Redis.command(replica, "ROLE"), (role) => role.startsWith("master"))
          const failover = Effect.andThen(begin, untilTrue(isMaster, "the replica is a master", 30))
          const allowed = yield* loadUntilUsedUp(limiters, groups.flat(), failover)
          yield* Limiters.untilAll("shared", limiters)
          for (const [caller, count] of allowed) {
            // The breaker of the killed master opens: each process and both of its masters allow the limit.
            if (isPlanned || !groups[index]?.includes(caller)) assert.strictEqual(count, limit, caller)
            else assert.isAtMost(count, limit * (limiters.length + 2), caller)
          }
          yield* Limiters.assertExact(limiters, callersOfMasters(`after ${index}`, 5).flat())
        }))
    }
  })
})
