/** Fakes of the servers that processes share. A server executes each request in one step, as a script or a statement. */
import { Effect } from "effect"
import type { SecretHolder } from "../../src/api-keys/ApiKeyStore.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { type Caller, isKey } from "../../src/rate-limit/CallerStates.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { type RedisClient, unnamedServer } from "../../src/rate-limit/RedisClient.ts"
import type { Command, Reply } from "../../src/rate-limit/RedisScript.ts"
import { Network, type Process, startOfTime, type World } from "./World.ts"

/** Whether a decision is from Redis, whose clock is weeks ahead. */
export const isShared = ({ decidedAt }: Policy.Decision): boolean => decidedAt > startOfTime + 2_500_000_000

export class Redis {
  readonly network: Network
  clockOffset = 5_000_000_000
  /** The number of times that the counts began: at the start, and at each loss of some. */
  lives = 1
  #states = new Map<Caller, Policy.State>()
  #replica = new Map<Caller, Policy.State>()
  readonly #world: World

  constructor(world: World) {
    this.#world = world
    this.network = new Network(world)
  }

  /** Starts again empty, or with the counts of a replica, which lacks the last 100 ms. */
  restart(isEmpty: boolean): void {
    this.lives++
    if (isEmpty) this.#replica = new Map()
    this.#states = new Map(this.#replica)
  }

  #execute(caller: Caller, command: Command): Reply {
    const now = startOfTime + this.#world.now + this.clockOffset
    const state = Policy.clamp(this.#states.get(caller) ?? {}, now)
    let next = command.verb === "unban" ? Policy.unban(state, now) : state
    for (let i = 0; command.verb === "charge" && i < command.requests; i++) {
      next = Policy.decide(next, command.limits, now, isKey(caller)).next
    }
    const { lives } = this
    this.#states.set(caller, next)
    this.#world.at(this.#world.now + 100, () => lives === this.lives && this.#replica.set(caller, next))
    return { now, state }
  }

  clientOf = (process: Process): RedisClient["Service"] => ({
    onError: () => {},
    connect: Effect.void,
    serverOf: () => unnamedServer,
    run: (caller, command) =>
      new Promise((resolve, reject) => {
        const fail = () => reject(new Error("Socket closed unexpectedly"))
        this.network.send<Reply>(process, (reply) => reply(this.#execute(caller, command)), resolve, fail)
      })
  })
}

export interface Create {
  readonly name: string
  readonly idempotencyKey: string
}

export class Database {
  readonly network: Network
  readonly keys = new Map<string, SecretHolder>()
  /** The times at which secrets were disabled. */
  readonly disabled = new Map<string, number>()
  /** The names of pets by idempotency key. */
  readonly pets = new Map<string, string>()

  constructor(world: World) {
    this.network = new Network(world)
  }

  #statement = <A>(process: Process, execute: () => A) =>
    Effect.callback<A, ServiceUnavailable>((resume) => {
      const fail = () => resume(Effect.fail(new ServiceUnavailable()))
      this.network.send<A>(process, (reply) => reply(execute()), (value) => resume(Effect.succeed(value)), fail)
    })

  keyStoreOf = (process: Process) => ({
    recordUses: () => Effect.void,
    findByHashes: (hashes: ReadonlyArray<string>) =>
      this.#statement(process, () => {
        const isEnabled = ([hash]: readonly [string, SecretHolder]) => hashes.includes(hash) && !this.disabled.has(hash)
        return new Map([...this.keys].filter(isEnabled))
      })
  })

  insertOf = (process: Process) => (creates: ReadonlyArray<Create>) =>
    this.#statement(process, () =>
      new Map(creates.map((create) => {
        const name = this.pets.get(create.idempotencyKey) ?? create.name
        this.pets.set(create.idempotencyKey, name)
        return [create, name]
      })))
}
