/** A Redis cluster, and a Redis with sentinels, on this machine. */
import { Effect } from "effect"
import { freePort } from "./Harness.ts"
import * as Redis from "./Redis.ts"

/** The time without a reply after which a node or a sentinel takes a server for failed. */
const failureTimeoutMs = 1000

const sleep = (milliseconds: number) =>
  Effect.promise(() => new Promise((resolve) => setTimeout(resolve, milliseconds)))

const until = (condition: Effect.Effect<boolean>) =>
  Effect.gen(function*() {
    while (!(yield* condition)) yield* sleep(20)
  })

/** The password of all servers. */
const password = "secret"
/** The user of the service, with the permissions that docs/redis.md names. */
const permissions =
  "~petstore:limits:* -@all +ping +hello +select +set +get +time +eval +evalsha +cluster|slots +asking"
const sentinelPermissions = "&* -@all +ping +hello +sentinel|master +sentinel|replicas +sentinel|sentinels +psubscribe"
const user = ["--user", "petstore", "on", `>${password}`, ...permissions.split(" ")]

const slots = ["0-5460", "5461-10922", "10923-16383"]

export interface Node extends Redis.RedisServer {
  readonly id: string
}

/**
 * Runs a cluster of three masters and three replicas. Their files describe the whole cluster, so that it is complete
 * from the start. The first three nodes are the masters.
 */
export const run = Effect.gen(function*() {
  const plans = yield* Effect.forEach(
    [0, 1, 2, 3, 4, 5],
    (index) =>
      Effect.gen(function*() {
        return { index, id: String(index).repeat(40), port: yield* freePort, busPort: yield* freePort }
      })
  )
  const line = (plan: typeof plans[number], self: typeof plans[number]): string => {
    const role = plan.index < 3 ? "master -" : `slave ${String(plan.index - 3).repeat(40)}`
    return `${plan.id} 127.0.0.1:${plan.port}@${plan.busPort} ${plan === self ? "myself," : ""}${role} 0 0 ` +
      `${plan.index % 3 + 1} connected ${slots[plan.index] ?? ""}`.trim()
  }
  const nodes = yield* Effect.forEach(plans, (plan) =>
    Effect.map(
      Redis.runWith({
        port: plan.port,
        files: {
          "nodes.conf": `${plans.map((each) => line(each, plan)).join("\n")}\nvars currentEpoch 3 lastVoteEpoch 0\n`
        },
        arguments: Object.entries({
          "--cluster-enabled": "yes",
          "--cluster-config-file": "nodes.conf",
          "--cluster-port": String(plan.busPort),
          "--cluster-node-timeout": String(failureTimeoutMs),
          "--cluster-require-full-coverage": "no",
          "--repl-diskless-sync-delay": "0"
        }).flat().concat(user)
      }),
      (server): Node => ({ ...server, id: plan.id })
    ))
  yield* Effect.forEach(nodes, ({ start }) => start, { concurrency: "unbounded" })
  for (const [index, { port }] of nodes.entries()) {
    yield* until(Effect.map(Redis.command(port, "CLUSTER", "INFO"), (text) => text.includes("cluster_state:ok")))
    if (index < 3) continue
    yield* until(Effect.map(Redis.command(port, "INFO", "replication"), (text) => text.includes("link_status:up")))
  }
  const [first, second, third] = nodes
  if (first === undefined || second === undefined || third === undefined) return yield* Effect.die("no master")
  return {
    masters: [first, second, third] as const,
    /** Replicas of the masters, in the same order. */
    replicas: nodes.slice(3),
    url: `redis+cluster://petstore:${password}@${nodes.map(({ port }) => `127.0.0.1:${port}`).join(",")}`
  }
})

/** Runs a master, a replica of it, and three sentinels. All of them need passwords. */
export const runWithSentinels = Effect.gen(function*() {
  const args = ["--requirepass", password, "--masterauth", password, "--repl-diskless-sync-delay", "0", ...user]
  const master = yield* Redis.runWith({ arguments: args })
  const replica = yield* Redis.runWith({ arguments: [...args, "--replicaof", `127.0.0.1 ${master.port}`] })
  yield* master.start
  yield* replica.start
  const ask = (port: number, ...line: ReadonlyArray<string>) =>
    Redis.commandDuringFailover(port, "--no-auth-warning", "-a", password, ...line)
  yield* until(Effect.map(ask(replica.port, "INFO", "replication"), (text) => text.includes("link_status:up")))

  const sentinels = yield* Effect.forEach([0, 1, 2], () =>
    Effect.gen(function*() {
      const port = yield* freePort
      const sentinel = yield* Redis.runWith({
        port,
        isSentinel: true,
        files: {
          "sentinel.conf": [
            `port ${port}`,
            `requirepass ${password}`,
            `user petstore on >${password} ${sentinelPermissions}`,
            `sentinel sentinel-pass ${password}`,
            `sentinel monitor pets 127.0.0.1 ${master.port} 2`,
            `sentinel auth-pass pets ${password}`,
            `sentinel down-after-milliseconds pets ${failureTimeoutMs}`,
            "sentinel failover-timeout pets 5000"
          ].join("\n")
        },
        arguments: ["sentinel.conf", "--sentinel"]
      })
      yield* sentinel.start
      return sentinel
    }))
  for (const { port } of sentinels) {
    yield* until(Effect.map(
      ask(port, "SENTINEL", "MASTER", "pets"),
      (text) => /num-other-sentinels\n2/.test(text) && /num-slaves\n1/.test(text)
    ))
  }
  const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(",")
  return {
    master,
    replica,
    sentinels,
    ask,
    url: `redis+sentinel://petstore:${password}@${hosts}/pets?sentinel_username=petstore&sentinel_password=${password}`
  }
})
