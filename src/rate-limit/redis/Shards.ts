/** The shards that `REDIS_URL` selects: one server, the master that sentinels name, or the masters of a cluster. */
import { Effect, Redacted, Result, Schema, type Scope } from "effect"
import * as RedisUrl from "../../config/RedisUrl.ts"
import * as Cluster from "./Cluster.ts"
import * as RedisClient from "./RedisClient.ts"
import type { RedisConnection } from "./RedisConnection.ts"
import * as Sentinels from "./Sentinels.ts"
import * as Shard from "./Shard.ts"

const probeKey = "petstore:limits:probe"

/** Makes the shards of a URL that was valid at the start. */
export const make = (text: Redacted.Redacted, hooks: Shard.Hooks) => {
  const url = Result.getOrThrow(RedisUrl.parse(Redacted.value(text)))
  const shards: Effect.Effect<Shard.Shards, never, Scope.Scope> = url.kind === "cluster"
    ? Cluster.make(url, hooks)
    : url.kind === "sentinel"
    ? makeSentinel(url, hooks)
    : makeSingle(hooks, {
      open: RedisClient.open(url, url.addresses[0]),
      name: () => "Redis",
      check: Shard.checkWrites(probeKey)
    })
  return shards
}

const makeSingle = Effect.fnUntraced(
  function*(hooks: Shard.Hooks, options: Omit<Shard.Options, "isMember" | "isNode" | "onChange">) {
    const status = yield* Shard.makeStatus
    const areUp = (): boolean => shard.route() !== undefined
    const shard: Shard.ClosableShard = yield* Shard.make(hooks, {
      ...options,
      isMember: () => true,
      isNode: false,
      onChange: Effect.suspend(() => status.set(areUp()))
    })
    yield* status.awaitFirst
    const shards: Shard.Shards = { of: () => shard, areUp }
    return { ...shards, close: shard.close }
  }
)

const makeSentinel = Effect.fnUntraced(function*(
  url: RedisUrl.RedisUrl,
  hooks: Shard.Hooks
) {
  let named: RedisUrl.Address | undefined
  let used: RedisUrl.Address | undefined
  let shards: Effect.Success<ReturnType<typeof makeSingle>> | undefined
  const leaveOldMaster = (): void => {
    if (named === undefined || used === undefined || RedisUrl.isSame(used, named)) return
    shards?.close(new Error(`The sentinels name another master, ${RedisUrl.format(named)}`))
  }
  const sentinels = yield* Sentinels.make(url, {
    isUp: () => shards?.areUp() ?? false,
    onChange: (master) => {
      named = master
      leaveOldMaster()
    }
  })
  shards = yield* makeSingle(hooks, {
    open: Effect.flatMap(sentinels.master, (master) => {
      used = master
      return RedisClient.open(url, master)
    }),
    name: () => used === undefined ? "Redis" : `Redis at ${RedisUrl.format(used)}`,
    check: (connection) => Effect.andThen(checkRole(connection), Shard.checkWrites(probeKey)(connection))
  })
  // The master can have changed before there was a connection to close.
  leaveOldMaster()
  return shards
})

const isMaster = Schema.is(Schema.TupleWithRest(Schema.Tuple([Schema.Literal("master")]), [Schema.Unknown]))

/** Fails if the server is a replica, which a replica that accepts writes is too. */
const checkRole = ({ run }: RedisConnection) =>
  Effect.filterOrFail(
    run(({ send }) => send("ROLE")),
    isMaster,
    () => new RedisClient.RedisDown({ cause: new Error("The server that the sentinels name is a replica") })
  )
