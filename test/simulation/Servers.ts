/** Fakes of the servers that processes share. A server executes each request in one step, as a script or a statement. */
import { Effect } from "effect"
import type { SecretHolder } from "../../src/api-keys/ApiKeyStore.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { type Caller, isKey } from "../../src/rate-limit/RateLimiter.ts"
import { type RedisClient, unnamedServer } from "../../src/rate-limit/RedisClient.ts"
import type { Command, Reply } from "../../src/rate-limit/RedisScript.ts"
import { makeNetwork, type Process, startOfTime, type World } from "./World.ts"

/** Whether a decision is from Redis, whose clock is weeks ahead. */
export const isShared = ({ decidedAt }: Policy.Decision): boolean => decidedAt > startOfTime + 2_500_000_000

export const makeRedis = (world: World) => {
  /** `lives` is the number of times that the counts began: at the start, and at each loss of some. */
  const state = { clockOffset: 5_000_000_000, lives: 1, network: makeNetwork(world) }
  let states = new Map<Caller, Policy.State>()
  const replica = new Map<Caller, Policy.State>()
  const execute = (caller: Caller, command: Command): Reply => {
    const now = startOfTime + world.now + state.clockOffset
    const before = Policy.clamp(states.get(caller) ?? {}, now)
    let next = command.verb === "unban" ? Policy.unban(before, now) : before
    for (let i = 0; command.verb === "charge" && i < command.requests; i++) {
      next = Policy.decide(next, command.limits, now, isKey(caller)).next
    }
    const { lives } = state
    states.set(caller, next)
    world.at(world.now + 100, () => lives === state.lives && replica.set(caller, next))
    return { now, state: before }
  }
  return Object.assign(state, {
    /** Starts again empty, or with the counts of a replica, which lacks the last 100 ms. */
    restart(isEmpty: boolean): void {
      state.lives++
      states = new Map(isEmpty ? [] : replica)
    },
    clientOf: (process: Process): RedisClient["Service"] => ({
      onError: () => {},
      connect: Effect.void,
      serverOf: () => unnamedServer,
      run: (caller, command) =>
        new Promise((resolve, reject) => {
          const fail = () => reject(new Error("Socket closed unexpectedly"))
          state.network.send<Reply>(process, (reply) => reply(execute(caller, command)), resolve, fail)
        })
    })
  })
}

export const makeDatabase = (world: World) => {
  const network = makeNetwork(world)
  const keys = new Map<string, SecretHolder>()
  /** The times at which secrets were disabled, and the names of pets by idempotency key. */
  const disabled = new Map<string, number>()
  const pets = new Map<string, string>()
  const statement = <A>(process: Process, execute: () => A) =>
    Effect.callback<A, ServiceUnavailable>((resume) => {
      const fail = () => resume(Effect.fail(new ServiceUnavailable()))
      network.send<A>(process, (reply) => reply(execute()), (value) => resume(Effect.succeed(value)), fail)
    })
  return {
    network,
    keys,
    disabled,
    pets,
    findByHashesOf: (process: Process) => (hashes: ReadonlyArray<string>) =>
      statement(process, () => new Map([...keys].filter(([hash]) => hashes.includes(hash) && !disabled.has(hash)))),
    insertOf: (process: Process) => (creates: ReadonlyArray<{ readonly name: string; readonly key: string }>) =>
      statement(process, () => {
        for (const { key, name } of creates) pets.set(key, pets.get(key) ?? name)
        return new Map(creates.map((create) => [create, pets.get(create.key) ?? ""]))
      })
  }
}
