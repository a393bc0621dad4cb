/** Fakes of the servers that the processes share. Each executes a request in one step, as a script or a statement. */
import { Effect } from "effect"
import type { SecretHolder } from "../../src/api-keys/ApiKeyStore.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { type Caller, isKey } from "../../src/rate-limit/CallerStates.ts"
import * as Policy from "../../src/rate-limit/Policy.ts"
import { RedisClient, unnamedServer } from "../../src/rate-limit/RedisClient.ts"
import type { Command, Reply } from "../../src/rate-limit/RedisScript.ts"
import { Network, type Process, startOfTime, type World } from "./World.ts"

/** A decision of Redis is later by its own clock than this, and a decision of a process is earlier. */
export const isSharedTime = (millis: number): boolean => millis > startOfTime + 2_500_000_000

export class Redis {
  readonly network: Network
  readonly #world: World
  clockOffset = 5_000_000_000
  /** One, and one more for each loss of counts. */
  lives = 1
  #states = new Map<Caller, Policy.State>()
  #replica = new Map<Caller, Policy.State>()

  constructor(world: World) {
    this.#world = world
    this.network = new Network(world)
  }

  restartEmpty(): void {
    this.lives++
    this.#states = new Map()
    this.#replica = new Map()
  }

  /** Promotes a replica, which lacks the writes of the last 100 ms. */
  failOver(): void {
    this.lives++
    this.#states = new Map(this.#replica)
  }

  #execute(caller: Caller, command: Command): Reply {
    const now = startOfTime + this.#world.now + this.clockOffset
    const state = Policy.clamp(this.#states.get(caller) ?? {}, now)
    let next = command.verb === "unban" ? Policy.unban(state, now) : state
    for (let i = 0; command.verb === "charge" && i < command.requests; i++) {
      next = Policy.decide(next, command.limits, now, isKey(caller)).next
    }
    const life = this.lives
    this.#states.set(caller, next)
    this.#world.at(this.#world.now + 100, () => life === this.lives && this.#replica.set(caller, next))
    return { now, state }
  }

  clientOf = (process: Process): RedisClient["Service"] => ({
    onError: () => {},
    connect: Effect.void,
    serverOf: () => unnamedServer,
    run: (caller, command) =>
      new Promise((resolve, reject) =>
        this.network.send<Reply>(
          process,
          (reply) => reply(this.#execute(caller, command)),
          resolve,
          () => reject(new Error("Socket closed unexpectedly"))
        )
      )
  })
}

/** A statement that a database executes at once and completely. */
const statement = <A>(network: Network, process: Process, execute: () => A) =>
  Effect.callback<A, ServiceUnavailable>((resume) =>
    network.send<A>(
      process,
      (reply) => reply(execute()),
      (value) => resume(Effect.succeed(value)),
      () => resume(Effect.fail(new ServiceUnavailable()))
    )
  )

export interface Create {
  readonly name: string
  readonly idempotencyKey: string
}

export class Database {
  readonly network: Network
  readonly #world: World
  /** The keys by secret, and since when they are disabled. */
  readonly keys = new Map<string, SecretHolder & { disabledAt: number | undefined }>()
  /** The names of all pets. An id is an index. */
  readonly pets: Array<string> = []
  readonly #claims = new Map<string, number>()

  constructor(world: World) {
    this.#world = world
    this.network = new Network(world)
  }

  setEnabled(secret: string, isEnabled: boolean): void {
    const key = this.keys.get(secret)
    if (key !== undefined) key.disabledAt = isEnabled ? undefined : this.#world.now
  }

  keyStoreOf = (process: Process) => ({
    recordUses: () => Effect.void,
    findByHashes: (hashes: ReadonlyArray<string>) =>
      statement(this.network, process, () =>
        new Map(hashes.flatMap((hash) => {
          const key = this.keys.get(hash)
          return key === undefined || key.disabledAt !== undefined ? [] : [[hash, key] as const]
        })))
  })

  insertOf = (process: Process) => (creates: ReadonlyArray<Create>) =>
    statement(this.network, process, () =>
      new Map(creates.map((create) => {
        const id = this.#claims.get(create.idempotencyKey) ?? this.pets.push(create.name) - 1
        this.#claims.set(create.idempotencyKey, id)
        return [create, id] as const
      })))
}
