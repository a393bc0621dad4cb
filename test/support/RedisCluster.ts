/** A Redis cluster, and a Redis with sentinels, on this machine. */
import { Effect } from "effect"
import { untilTrue } from "./Process.ts"
import * as Redis from "./Redis.ts"
import { freePort } from "./Temporary.ts"

/** The time without a reply after which a node or a sentinel takes a server for failed. */
const failureTimeoutMs = 1000

const password = "secret"
/** The permissions that docs/redis.md names. */
const permissions =
  "~petstore:limits:* -@all +ping +hello +select +set +get +time +eval +evalsha +cluster|slots +asking"
const sentinelPermissions = "&* -@all +ping +hello +sentinel|master +sentinel|replicas +sentinel|sentinels +psubscribe"
const user = ["--user", "petstore", "on", `>${password}`, ...permissions.split(" ")]

const slots = ["0-5460", "5461-10922", "10923-16383"]

export type Node = Redis.RedisServer & { readonly id: string }

const untilReply = (reply: Effect.Effect<string>, text: string) =>
  untilTrue(Effect.map(reply, (found) => found.includes(text)), text, 30)

/** Runs three masters, and three replicas. Their files describe the whole cluster, so it is complete from the start. */
export const run = Effect.gen(function*() {
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
export const runWithSentinels = Effect.gen(function*() {
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
  const ports = yield* Effect.replicateEffect(Redis.startSentinel(lines.join("\n")), 3)
  for (const port of ports) {
    const state = ask(port, "SENTINEL", "MASTER", "pets")
    yield* untilReply(state, "num-other-sentinels\n2")
    yield* untilReply(state, "num-slaves\n1")
  }
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(",")
  const parameters = `sentinel_username=petstore&sentinel_password=${password}`
  return { master, replica, ask, url: `redis+sentinel://petstore:${password}@${hosts}/pets/1?${parameters}` }
})
