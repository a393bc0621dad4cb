/**
 * A shard: one Redis server that counts callers, with its own clock. A single Redis is one shard, and each master of a
 * cluster is one.
 */
import { Clock, Deferred, Effect, Metric, Schedule, type Scope } from "effect"
import type { Redis } from "effect/persistence"
import type { Caller } from "../CallerStates.ts"
import * as SteadyClock from "../SteadyClock.ts"
import type { RedisClient, RedisDown } from "./RedisClient.ts"
import * as RedisConnection from "./RedisConnection.ts"
import { SharedClock } from "./SharedClock.ts"

const fallback = Metric.gauge("rate_limit_fallback", {
  description: "1 while a Redis server does not respond and this process counts its callers by itself, else 0."
})

/** The interval of synchronizations with the shared time, so that clock drift never looks like a step. */
const synchronizationInterval = "500 millis"

/** A shard's connection, and the clock that scripts on it use. */
export interface Route {
  readonly connection: RedisConnection.RedisConnection
  readonly clock: SharedClock
  /** Whether the server imports the caller's slot, and serves it only after an ASKING command. */
  readonly isAsking: boolean
}

export interface Shard {
  /** The clock of the shard's callers, also while the shard is down. */
  readonly clock: SharedClock
  /** Returns the route to the shard, or `undefined` while it is down. */
  readonly route: () => Route | undefined
}

export interface ClosableShard extends Shard {
  /** Closes the connection because of `cause`, to open a new one at once. */
  readonly close: (cause: unknown) => void
}

/** The shards of all callers. */
export interface Shards {
  readonly of: (caller: Caller) => Shard
  /** Whether all shards are up. */
  readonly areUp: () => boolean
  /** Returns the route that an error of `from` names, if it is a redirection. Only a cluster redirects. */
  readonly redirect?: (error: RedisDown, from: Shard) => { readonly route: Route; readonly shard: Shard } | undefined
}

type IsMember = (caller: Caller) => boolean

/** The reactions of the limiter to a shard. `isMember` selects the callers of the shard. */
export interface Hooks {
  /** Runs at the first synchronization of the shard's clock, with the milliseconds by which the clock moves. */
  readonly onFirst: (offset: number, isMember: IsMember) => void
  /** Runs when the shard is up. */
  readonly onUp: (route: Route, isMember: IsMember) => Effect.Effect<void>
}

/** The server of a shard, and its callers. */
export interface Options {
  readonly isMember: (caller: Caller, shard: Shard) => boolean
  readonly open: Effect.Effect<RedisClient, unknown, Scope.Scope>
  readonly name: () => string
  /** Whether the server is a node of a cluster. */
  readonly isNode: boolean
  /** Checks that the server can be used. */
  readonly check: (connection: RedisConnection.RedisConnection) => Effect.Effect<void, RedisDown>
  /** The key of the shard's clock, if it is not the usual one. */
  readonly clockKey?: () => string
  readonly onChange: Effect.Effect<void>
  /** Gets the errors of synchronizations. */
  readonly onError?: (error: RedisDown) => void
}

/** Makes a shard, and keeps a connection to it open until the scope closes. */
export const make = Effect.fnUntraced(function*(
  hooks: Hooks,
  { check, clockKey, isMember, isNode, name, onChange, onError = () => {}, open }: Options
) {
  const isOwn = (caller: Caller): boolean => isMember(caller, shard)
  const steady = SteadyClock.make(yield* Clock.Clock)
  const clock = new SharedClock(steady, (offset) => hooks.onFirst(offset, isOwn), clockKey)
  const synchronize = (connection: RedisConnection.RedisConnection) =>
    Effect.tapError(clock.synchronize(connection), (error) => Effect.sync(() => onError(error)))
  const lasting: RedisConnection.Lasting<Route> = yield* RedisConnection.make({
    open,
    name,
    isNode,
    onChange,
    onConnect: (connection) =>
      check(connection).pipe(
        Effect.andThen(synchronize(connection)),
        Effect.as({ connection, clock, isAsking: false })
      ),
    onUp: (route) =>
      Effect.andThen(
        hooks.onUp(route, isOwn),
        Effect.repeat(Effect.ignore(synchronize(route.connection)), Schedule.spaced(synchronizationInterval))
      )
  })
  const shard: ClosableShard = { clock, route: lasting.current, close: lasting.close }
  return shard
})

/** A shard that is never up, for callers whose server is not known. */
export const makeUnknown = Effect.map(Clock.Clock, (clock): Shard => ({
  clock: new SharedClock(SteadyClock.make(clock), () => {}),
  route: () => undefined
}))

/** Reports whether all shards are up, and lets the start of the service wait until they are. */
export const makeStatus = Effect.gen(function*() {
  const first = yield* Deferred.make<void>()
  return {
    set: (areUp: boolean) =>
      Effect.andThen(
        Metric.update(fallback, areUp ? 0 : 1),
        areUp ? Deferred.succeed(first, undefined) : Effect.void
      ),
    /** Waits until all shards are up for the first time, for one second at most. */
    awaitFirst: Effect.timeoutOption(Deferred.await(first), "1 second")
  }
})

/** Runs a command that a server which only reads, or which rejects the commands of this user, does not run. */
export const checkWrites = (key: string) => ({ run }: RedisConnection.RedisConnection) =>
  run(({ send }) => send("SET", key, "", "PX", "1000"))

/** Scripts for a server that imports the slot of their key. */
export const asking = (redis: Redis.Redis["Service"]): Redis.Redis["Service"] => ({
  ...redis,
  // Both commands are sent at once: ASKING is for the next command on the connection.
  eval: (script) => (...params) =>
    Effect.map(
      Effect.all([
        redis.send("ASKING"),
        redis.send<never>(
          "EVAL",
          script.lua,
          String(script.numberOfKeys(...params)),
          ...script.params(...params).map(String)
        )
      ], { concurrency: "unbounded" }),
      ([, reply]) => reply
    )
})
