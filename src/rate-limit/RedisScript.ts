/**
 * The policy of `Policy.ts` as an atomic Lua script for Redis 7 and Valkey. The script uses the clock of Redis. Each
 * caller has one Redis key, whose value is the caller's state as eight numbers.
 */
import { type CommandParser, defineScript } from "redis"
import { bans, dayWindow, type Limits, minuteWindow, type State } from "./Policy.ts"

export type Command =
  | { readonly verb: "charge"; readonly requests: number; readonly limits: Limits }
  /** The circuit breaker's probe rewrites the caller's state, to detect read-only servers, such as replicas. */
  | { readonly verb: "peek" | "unban" | "probe" }

/**
 * `state` is the caller's state before the command. `Policy.decide` repeats the script's decisions on that state.
 * `test/rate-limit/RateLimiter.test.ts` verifies that the decisions are equal.
 */
export interface Reply {
  readonly now: number
  readonly state: State
}

const readReply = (reply: unknown): Reply => {
  const numbers = Array.isArray(reply) ? reply.map(Number) : []
  const at = (index: number) => numbers[index] ?? 0
  const count = (index: number) => ({ used: at(index), resetAt: at(index + 1) })
  const state = { minute: count(1), day: count(3), rejections: count(5), ban: { seconds: at(7), until: at(8) } }
  return { now: at(0), state }
}

/**
 * The script lets a state expire a day after its end, in case the clock of Redis is by mistake set forward by up to a
 * day and then back.
 */
export const runCommand = defineScript({
  NUMBER_OF_KEYS: 1,
  IS_READ_ONLY: false,
  parseCommand(parser: CommandParser, key: string, isBannable: boolean, command: Command) {
    parser.pushKey(key)
    parser.push(command.verb, isBannable ? "1" : "0")
    if (command.verb === "charge") {
      const { limits, requests } = command
      parser.push(String(requests), String(limits.perMinute), String(limits.perDay))
    }
  },
  transformReply: readReply,
  SCRIPT: `
local verb, bannable = ARGV[1], ARGV[2] == "1"
local requests, per_minute, per_day = tonumber(ARGV[3] or 0), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call("GET", KEYS[1])
local state = {}
for number in string.gmatch(stored or "0 0 0 0 0 0 0 0", "%d+") do state[#state + 1] = tonumber(number) end

local minute, day, rejections, ban_seconds, ban_until = 1, 3, 5, 7, 8
local seconds_of = {
  [minute] = ${minuteWindow.seconds}, [day] = ${dayWindow.seconds}, [rejections] = ${minuteWindow.seconds}}
for count, seconds in pairs(seconds_of) do
  state[count + 1] = math.min(state[count + 1], now + seconds * 1000)
end
state[ban_until] = math.min(state[ban_until], now + state[ban_seconds] * 1000)
local before = {now, unpack(state, 1, 8)}

local function used(count) return now < state[count + 1] and state[count] or 0 end
local function add(count)
  if now >= state[count + 1] then state[count], state[count + 1] = 0, now + seconds_of[count] * 1000 end
  state[count] = state[count] + 1
end
local function set_ban(seconds, ends)
  state[rejections], state[rejections + 1] = 0, 0
  state[ban_seconds], state[ban_until] = seconds, ends
end

if verb == "unban" then set_ban(state[ban_seconds], math.min(state[ban_until], now)) end
for _ = 1, requests do
  if now < state[ban_until] then break end
  if used(minute) < per_minute and used(day) < per_day then
    add(minute)
    add(day)
  elseif bannable then
    add(rejections)
    if state[rejections] >= math.max(per_minute, ${bans.minRejections}) then
      local repeated = state[ban_seconds] > 0 and now < state[ban_until] + ${bans.backoffResetSeconds * 1000}
      local seconds = repeated and math.min(2 * state[ban_seconds], ${bans.maxSeconds}) or ${bans.minSeconds}
      set_ban(seconds, now + seconds * 1000)
    end
  end
end

local ban_ends = state[ban_until] > 0 and state[ban_until] + ${bans.backoffResetSeconds * 1000} or 0
local last = math.max(now, state[minute + 1], state[day + 1], state[rejections + 1], ban_ends)
local value = table.concat(state, " ", 1, 8)
if value ~= stored and last > now or verb == "probe" then
  redis.call("SET", KEYS[1], value, "PX", last - now + ${dayWindow.seconds * 1000})
end
return before`
})
