/** Servers that processes share. Redis runs the service's script. The database has the semantics of its statements. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Struct } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import type { CommandParser } from "redis"
import { LuaFactory } from "wasmoon"
import type { SecretHolder } from "../../src/api-keys/ApiKeyStore.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { Pet, type PetStatus } from "../../src/api/Pets.ts"
import type * as Policy from "../../src/rate-limit/Policy.ts"
import { type Caller, isKey } from "../../src/rate-limit/RateLimiter.ts"
import { type Command, type Reply, runCommand } from "../../src/rate-limit/RedisScript.ts"
import { clientOf } from "../rate-limit/Limiters.ts"
import { makeNetwork, type Process, startOfTime, type World } from "./World.ts"

const lua = await new LuaFactory().createEngine()
// Redis has Lua 5.1, in which `unpack` is a global.
await lua.doString(`
unpack = table.unpack
local script = assert(load([==[${runCommand.SCRIPT}]==]))
local now, value
redis = {}
function redis.call(name, key, new)
  if name == "TIME" then return {tostring(now // 1000), tostring(now % 1000 * 1000)} end
  if name == "SET" then value = new end
  return value or false
end
function run(time, stored, ...)
  now, value, KEYS, ARGV = time, stored, {""}, {...}
  return table.concat(script(), " ") .. ";" .. (value or "")
end`)
const run: (...args: ReadonlyArray<unknown>) => string = lua.global.get("run")

/** Runs a command at a time of Redis's clock. `stored` and `value` are the value of the caller's Redis key. */
export const runScript = (time: number, stored: string | undefined, caller: Caller, command: Command) => {
  const args: Array<unknown> = []
  const parser = { pushKey: () => {}, push: (...more: ReadonlyArray<unknown>) => args.push(...more) }
  runCommand.parseCommand(parser as unknown as CommandParser, caller, isKey(caller), command)
  const [reply, value = ""] = run(Math.floor(time), stored, ...args).split(";")
  return { reply: runCommand.transformReply(reply?.split(" ")), value: value === "" ? undefined : value }
}

/** Whether a decision is from Redis, whose clock is weeks ahead. */
export const isShared = ({ decidedAt }: Policy.Decision): boolean => decidedAt > startOfTime + 2_500_000_000

export const makeRedis = (world: World) => {
  /** `lives` is the number of times that the counts began: at the start, and at each loss of some. */
  const state = { clockOffset: 5_000_000_000, lives: 1, network: makeNetwork(world) }
  let values = new Map<string, string>()
  const replica = new Map<string, string>()
  return Object.assign(state, {
    /** Starts again empty, or with the counts of a replica, which lacks the last 100 ms. */
    restart(isEmpty: boolean): void {
      state.lives++
      values = new Map(isEmpty ? [] : replica)
    },
    clientOf: (process: Process) =>
      clientOf((caller, command) => {
        const serve = (sendReply: (reply: Reply) => void): void => {
          const [key, now, { lives }] = [caller, startOfTime + world.now + state.clockOffset, state]
          const { reply, value } = runScript(now, values.get(key), caller, command)
          if (value !== undefined) {
            values.set(key, value)
            world.at(world.now + 100, () => lives === state.lives && replica.set(key, value))
          }
          sendReply(reply)
        }
        return new Promise((resolve, reject) =>
          state.network.send<Reply>(process, serve, resolve, () => reject(new Error("Socket closed unexpectedly")))
        )
      })
  })
}

type NewRow = Readonly<{ name: string; categoryId: string; status?: PetStatus }>
type Create = readonly [pet: NewRow, ...claim: ReadonlyArray<string>]

const otherPet: Create = [{ name: "other", categoryId: "1", status: "sold" }]

const connectionError = new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error("closed") }) })

/** `onDisorder` runs when pets of one process become visible out of order. */
export const makeDatabase = (world: World, onDisorder: () => void) => {
  const network = makeNetwork(world)
  const keys = new Map<string, SecretHolder>()
  const disabled = new Map<string, number>()
  const visible = new Map<bigint, Pet>()
  /** The claimed idempotency keys, and the transactions that can still insert pets. */
  const claims = new Map<string, { readonly id: bigint; readonly hash: string }>()
  const writers = new Set<object>()
  const newest = new Map<Process, bigint>()
  let lastId = 0n

  /** Runs a transaction, which has its ids from its start, and inserts `creates` at its end. Returns their rows. */
  const insert = (creates: ReadonlyArray<Create>, duration: number, onEnd: (rows: ReadonlyArray<object>) => void) => {
    const ids = creates.map(() => ++lastId)
    const writer = {}
    writers.add(writer)
    world.at(world.now + duration, () => {
      writers.delete(writer)
      onEnd(creates.map(([{ categoryId, ...fields }, owner, key, hash = ""], index) => {
        const id = ids[index] ?? 0n
        const claimed = claims.get(`${owner} ${key}`)
        if (claimed !== undefined) {
          return { id: claimed.id, isReplay: true, otherHash: claimed.hash === hash ? null : claimed.hash }
        }
        if (key !== undefined) claims.set(`${owner} ${key}`, { id, hash })
        visible.set(id, { id, ...fields, categoryId: BigInt(categoryId) })
        return { id, isReplay: false, otherHash: null }
      }))
    })
  }

  /** Returns pets as one row with an array for each field, or no row. */
  const rowsOf = (pets: ReadonlyArray<Pet>) => {
    const all = (field: keyof Pet) => pets.map((pet) => pet[field] ?? null)
    return pets.length === 0 ? [] : [Object.fromEntries(Struct.keys(Pet.fields).map((field) => [field, all(field)]))]
  }

  /** The rows of a page, and of all pages that a statement asks for. */
  const pageOf = (after: string, page: number, sql: string) => {
    const [, status] = /"status" = '(\w+)'/.exec(sql) ?? []
    const found = [...visible.values()].filter((pet) => pet.id > BigInt(after))
      .filter((pet) => status === undefined || pet.status === status)
      .toSorted((a, b) => a.id < b.id ? -1 : 1)
      .slice(0, Number(/LIMIT (\d+)/.exec(sql)?.[1]))
    return rowsOf(found).map((row) => ({ ...row, page: page + 1 }))
  }

  const read = (sql: string, [list]: ReadonlyArray<unknown>): ReadonlyArray<object> => {
    const values = () => String(list).slice(1, -1).split(",")
    if (sql.includes("pg_locks")) return [...writers].map((id) => ({ id }))
    if (sql.includes("unnest")) return values().flatMap((after, page) => pageOf(after, page, sql))
    if (sql.includes("DELETE")) return []
    return rowsOf(values().flatMap((id) => visible.get(BigInt(id)) ?? []))
  }

  const send = <A, E>(process: Process, error: E, serve: (reply: (value: A) => void) => void) =>
    Effect.callback<A, E>((resume) => {
      network.send<A>(process, serve, (value) => resume(Effect.succeed(value)), () => resume(Effect.fail(error)))
    })

  /** Executes a statement. Pets of a statement that its process still awaits become visible in order. */
  const execute = (process: Process) => (sql: string, params: ReadonlyArray<unknown>) =>
    Effect.suspend(() => {
      let isAwaited = true
      const statement = send<ReadonlyArray<object>, SqlError.SqlError>(process, connectionError, (reply) => {
        if (!sql.includes("nextval")) return reply(read(sql, params))
        const creates: ReadonlyArray<Create> = JSON.parse(String(params.find((param) => String(param).startsWith("["))))
        const first = lastId + 1n
        insert(creates, world.between(0, 100), (rows) => {
          if (isAwaited && first < (newest.get(process) ?? 0n)) onDisorder()
          if (isAwaited) newest.set(process, first)
          isAwaited = false
          reply(rows)
        })
      })
      // After an interruption or a lost connection, the process awaits it no longer, and it can still commit.
      return Effect.ensuring(statement, Effect.sync(() => isAwaited = false))
    })

  return {
    network,
    keys,
    disabled,
    visible,
    lastId: () => lastId,
    write: (count: number, duration: number) =>
      insert(Array.from({ length: count }, () => otherPet), duration, () => {}),
    findByHashesOf: (process: Process) => (hashes: ReadonlyArray<string>) =>
      send<Map<string, SecretHolder>, ServiceUnavailable>(
        process,
        new ServiceUnavailable(),
        (reply) => reply(new Map([...keys].filter(([hash]) => hashes.includes(hash) && !disabled.has(hash))))
      ),
    sqlOf: (process: Process) => {
      const acquirer = Effect.succeed({ execute: execute(process) } as unknown as SqlConnection.Connection)
      const options = { acquirer, compiler: PgClient.makeCompiler(), spanAttributes: [], driver: "fake" }
      return Effect.provide(SqlClient.make(options), Reactivity.layer)
    }
  }
}
