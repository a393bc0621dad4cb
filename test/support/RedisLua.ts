/** Runs the script of `RedisScript.ts` in a Lua interpreter. */
import type { CommandParser } from "redis"
import { LuaFactory } from "wasmoon"
import type { Caller } from "../../src/rate-limit/RateLimiter.ts"
import { type Command, runCommand } from "../../src/rate-limit/RedisScript.ts"

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
export const execute = (time: number, stored: string | undefined, caller: Caller, command: Command) => {
  const args: Array<unknown> = []
  const parser = { pushKey: () => {}, push: (...more: ReadonlyArray<unknown>) => args.push(...more) }
  runCommand.parseCommand(parser as unknown as CommandParser, caller, command)
  const [reply, value = ""] = run(Math.floor(time), stored, ...args).split(";")
  return { reply: runCommand.transformReply(reply?.split(" ")), value: value === "" ? undefined : value }
}
