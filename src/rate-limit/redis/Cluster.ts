/**
 * The shards of a Redis cluster. The slot map is read again after a MOVED error, while a master is down, and every ten
 * seconds. A shard keeps its clock and its callers when a replica becomes its master.
 */
import { type Cause, Effect, Exit, Latch, Scope } from "effect"
import { ErrorReply } from "redis"
import { type Address, format, isSame, type RedisUrl } from "../../config/RedisUrl.ts"
import { describe } from "../../observability/LogLines.ts"
import type { Caller } from "../CallerStates.ts"
import { clockKeyOf } from "./ClockScripts.ts"
import * as ClusterMap from "./ClusterMap.ts"
import * as RedisClient from "./RedisClient.ts"
import { keyOf } from "./RedisScripts.ts"
import * as Shard from "./Shard.ts"

const readInterval = { up: "10 seconds", down: "500 millis" } as const
const minPauseBetweenReads = "50 millis"
const nodeTimeout = "1 second"

type Member = Effect.Success<ReturnType<typeof makeMember>>

export const make = Effect.fnUntraced(function*(
  url: RedisUrl,
  hooks: Shard.Hooks
) {
  const scope = yield* Effect.scope
  const unknown = yield* Shard.makeUnknown
  const status = yield* Shard.makeStatus
  let members: ReadonlyArray<Member> = []
  let slots: Array<Shard.Shard> = Array.from({ length: ClusterMap.slotCount }, () => unknown)
  let isComplete = false
  /** Open when the map must be read. */
  const isOutdated = Latch.makeUnsafe(true)

  const areUp = () => isComplete && members.every(({ shard }) => shard.route() !== undefined)
  const onChange = Effect.suspend(() => {
    if (!areUp()) isOutdated.openUnsafe()
    return status.set(areUp())
  })
  const of = (caller: Caller): Shard.Shard => slots[ClusterMap.slotOf(keyOf(caller))] ?? unknown
  const isMember: Shard.Options["isMember"] = (caller, shard) => of(caller) === shard
  const redirect: Shard.Shards["redirect"] = ({ cause }, from) => {
    const sender = members.find(({ shard }) => shard === from)
    if (sender === undefined || !(cause instanceof ErrorReply)) return undefined
    const redirection = ClusterMap.parseRedirection(cause.message, sender.address())
    if (redirection === undefined) return undefined
    const member = members.find(({ address }) => isSame(address(), redirection.address))
    if (!redirection.isAsk) isOutdated.openUnsafe()
    const route = member?.shard.route()
    if (member === undefined || route === undefined) return undefined
    if (redirection.isAsk) return { shard: member.shard, route: { ...route, isAsking: true } }
    slots[redirection.slot] = member.shard
    return { shard: member.shard, route }
  }

  const apply = Effect.fnUntraced(function*(groups: ReadonlyArray<ClusterMap.Group>) {
    const left = new Set(members)
    const take = (matches: (member: Member) => boolean): Member | undefined => {
      const found = [...left].find(matches)
      if (found !== undefined) left.delete(found)
      return found
    }
    const present = groups.map((group) => ({ group, member: take((each) => each.group().master === group.master) }))
    members = yield* Effect.forEach(
      present,
      ({ group, member = take((each) => each.group().nodes.has(group.master)) }) =>
        member === undefined
          ? makeMember(url, hooks, { group, isMember, onChange, onError: redirect })
          : Effect.as(Effect.sync(() => member.update(group)), member)
    )
    const next = Array.from({ length: ClusterMap.slotCount }, () => unknown)
    for (const { group, shard } of members) {
      for (const [first, last] of group().ranges) next.fill(shard, first, last + 1)
    }
    slots = next
    isComplete = !next.includes(unknown)
    yield* Effect.forEach(left, ({ close }) => close, { discard: true })
    yield* status.set(areUp())
  })

  const readMap = Effect.suspend(() => {
    const up = members.flatMap(({ address, shard }) => {
      const route = shard.route()
      return route === undefined ? [] : [{ address: address(), connection: route.connection }]
    })
    // Another node each time: one that has lost its cluster has an old map.
    const source = up[Math.floor(Math.random() * up.length)]
    if (source === undefined) return readFromAny(url, [...members.map(({ address }) => address()), ...url.addresses])
    return Effect.flatMap(source.connection.run(({ send }) => send("CLUSTER", "SLOTS")), parse(source.address))
  })

  let isReported = false
  const report = Effect.fnUntraced(function*(cause: Cause.Cause<unknown>) {
    yield* status.set(areUp())
    // The shards report their own failures.
    if (isReported || members.length > 0) return
    isReported = true
    yield* Effect.logWarning(`Redis cannot be used. This process counts requests by itself: ${describe(cause)}`)
  })
  const keepMap = Effect.gen(function*() {
    yield* Effect.timeoutOption(isOutdated.await, areUp() ? readInterval.up : readInterval.down)
    isOutdated.closeUnsafe()
    yield* Effect.catchCause(Effect.flatMap(readMap, apply), report)
    yield* Effect.sleep(minPauseBetweenReads)
  })
  yield* Effect.forkScoped(Scope.provide(Effect.forever(keepMap), scope))
  yield* status.awaitFirst

  const shards: Shard.Shards = { of, areUp, redirect }
  return shards
})

/** A master of the cluster and its shard. The scope of the caller closes it, or `close`. */
const makeMember = Effect.fnUntraced(function*(
  url: RedisUrl,
  hooks: Shard.Hooks,
  { group: first, isMember, onChange, onError }: Pick<Shard.Options, "isMember"> & {
    readonly group: ClusterMap.Group
    readonly onChange: Effect.Effect<void>
    readonly onError: (error: RedisClient.RedisDown, shard: Shard.Shard) => unknown
  }
) {
  let group = first
  let tag = ClusterMap.tagOf(first)
  const scope = yield* Scope.fork(yield* Effect.scope)
  const shard = yield* Scope.provide(
    Shard.make(hooks, {
      open: Effect.suspend(() => RedisClient.open(url, group.address)),
      name: () => `Redis at ${format(group.address)}`,
      check: (connection) => Shard.checkWrites(`petstore:limits:probe:{${tag}}`)(connection),
      isMember,
      isNode: true,
      clockKey: () => clockKeyOf(tag),
      onChange,
      onError: (error) => onError(error, shard)
    }),
    scope
  )
  return {
    shard,
    group: () => group,
    address: () => group.address,
    update: (next: ClusterMap.Group): void => {
      const { address, master, nodes } = group
      // A failed master is missing in the map until it returns as a replica.
      group = next.master === master ? next : { ...next, nodes: nodes.union(next.nodes) }
      tag = ClusterMap.tagOf(next)
      if (!isSame(address, next.address)) shard.close(new Error(`It replaced ${format(address)}`))
    },
    close: Scope.close(scope, Exit.void)
  }
})

const parse = (address: Address) => (reply: unknown) => {
  const groups = ClusterMap.parse(reply, address)
  return groups === undefined || groups.length === 0
    ? Effect.fail(new RedisClient.RedisDown({ cause: new Error(`${format(address)} has no slots of a cluster`) }))
    : Effect.succeed(groups)
}

/** Reads the map from the first node that replies. */
const readFromAny = (url: RedisUrl, nodes: ReadonlyArray<Address>) =>
  Effect.raceAll(nodes.map((node) =>
    Effect.gen(function*() {
      const { client, redis } = yield* RedisClient.open(url, node)
      yield* Effect.addFinalizer(() => Effect.sync(() => client.isOpen && client.destroy()))
      client.on("error", () => {})
      return yield* Effect.flatMap(redis.send("CLUSTER", "SLOTS"), parse(node))
    }).pipe(Effect.scoped, Effect.timeout(nodeTimeout))
  ))
