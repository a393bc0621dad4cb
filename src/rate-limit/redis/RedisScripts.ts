/**
 * The rules of `Policy.ts` as Lua scripts for Redis 7 and Valkey. Each runs in one atomic step on the shared time
 * (`ClockScripts.ts`). A caller is one key, and so one slot of a cluster. Its value holds the numbers of `toNumbers`.
 */
import { Random } from "effect"
import { Redis } from "effect/persistence"
import type { Limits } from "../../api/Plans.ts"
import { type Caller, isKey } from "../CallerStates.ts"
import { bans, dayWindow, minuteWindow, type State } from "../Policy.ts"
import { minStep } from "../SteadyClock.ts"
import { readRedisTime, type SharedTime } from "./ClockScripts.ts"

/** The shared time in milliseconds, and the caller's state. */
export type Reply = readonly [now: number, ...state: ReadonlyArray<number>]

export const read = ([now, ...numbers]: Reply) => ({ now, state: ofNumbers(numbers) })

const toNumbers = ({ ban, day, minute, refusals }: State): ReadonlyArray<number> => [
  ...[minute, day, refusals].flatMap((count) => [count?.used ?? 0, count?.resetAt ?? 0]),
  ban?.seconds ?? 0,
  ban?.until ?? 0
]

const ofNumbers = ([
  minuteUsed = 0,
  minuteReset = 0,
  dayUsed = 0,
  dayReset = 0,
  refusals = 0,
  refusalsReset = 0,
  banSeconds = 0,
  banUntil = 0
]: ReadonlyArray<number>): State => ({
  minute: { used: minuteUsed, resetAt: minuteReset },
  day: { used: dayUsed, resetAt: dayReset },
  refusals: { used: refusals, resetAt: refusalsReset },
  ban: { seconds: banSeconds, until: banUntil }
})

/** The key of a caller in Redis. */
export const keyOf = (caller: Caller): string => `petstore:limits:${caller}`

/**
 * Milliseconds that Redis keeps a caller after the last of its counts ended. A forward step of Redis's clock by as much
 * deletes no count that still counts.
 */
const expiryMargin = 86_400_000

/**
 * A script around what `body` does with the caller's `state`: its counts are `{used, reset}` at 1, 3 and 5, its ban is
 * at 7. The numbers of the last merges, of any process, are from 9 on. Writes the state only if it changed. No count or
 * ban ends later than its length from now, whatever is stored. Returns the `reply` of `body`, or else the state after
 * it.
 */
const script = (body: string): string =>
  `${readRedisTime}
local estimate, offset = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local now = redis_time + offset
if math.abs(now - estimate) >= ${minStep} then return false end

local stored = redis.call("GET", KEYS[1])
local state = {}
for number in string.gmatch(stored or "0 0 0 0 0 0 0 0 0", "%d+") do
  state[#state + 1] = tonumber(number)
end
local minute, day, refusals = 1, 3, 5
local seconds_of = {
  [minute] = ${minuteWindow.seconds}, [day] = ${dayWindow.seconds}, [refusals] = ${minuteWindow.seconds}}
for count, seconds in pairs(seconds_of) do
  state[count + 1] = math.min(state[count + 1], now + seconds * 1000)
end
state[8] = math.min(state[8], now + state[7] * 1000)

local function used(count)
  return now < state[count + 1] and state[count] or 0
end

local function add(count)
  if now >= state[count + 1] then
    state[count], state[count + 1] = 0, now + seconds_of[count] * 1000
  end
  state[count] = state[count] + 1
end

local reply
${body}
local last = math.max(state[2], state[4], state[6], state[8] > 0 and state[8] + ${bans.memory * 1000} or 0)
local value = table.concat(state, " ")
if value ~= stored and last > now then
  redis.call("SET", KEYS[1], value, "PXAT", last - offset + ${expiryMargin})
end
return reply or {now, unpack(state, 1, 8)}
`

const timeOf = ({ clockOffset, estimate }: SharedTime) => [estimate, clockOffset]

/**
 * Charges requests that arrive together, one after another as the policy does. Returns the state before the first
 * charge, from which `decideBatch` derives the decision on each. Without a charge it is a peek.
 */
export const charge = Redis.script(
  (caller: Caller, { perDay, perMinute }: Limits, charges: number, time: SharedTime) => [
    keyOf(caller),
    perMinute,
    perDay,
    isKey(caller) ? 1 : 0,
    charges,
    ...timeOf(time)
  ],
  {
    numberOfKeys: 1,
    lua: script(`
local per_minute, per_day, bannable = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == "1"
reply = {now, unpack(state, 1, 8)}
for _ = 1, tonumber(ARGV[4]) do
  if now < state[8] then break end
  if used(minute) < per_minute and used(day) < per_day then
    add(minute)
    add(day)
  elseif bannable then
    add(refusals)
    if state[refusals] >= math.max(per_minute, ${bans.minRejections}) then
      local repeated = state[7] > 0 and now < state[8] + ${bans.memory * 1000}
      local seconds = repeated and math.min(2 * state[7], ${bans.longest}) or ${bans.shortest}
      state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, seconds, now + seconds * 1000
    end
  end
end`)
  }
).withReturnType<Reply | null>()

/** Lifts a ban, as `unban` of the policy does. */
export const unban = Redis.script((caller: Caller, time: SharedTime) => [keyOf(caller), ...timeOf(time)], {
  numberOfKeys: 1,
  lua: script(`
state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, 0, now`)
}).withReturnType<Reply | null>()

/** Returns the counts in `state` that are not in `before`: of the minute, of the day, and of rejections. */
const added = (state: State, before: State): ReadonlyArray<number> =>
  (["minute", "day", "refusals"] as const).map((name) => {
    const [now, then] = [state[name], before[name]]
    return (now?.used ?? 0) - (then !== undefined && then.resetAt === now?.resetAt ? then.used : 0)
  })

/** The content of a merge, and its number. A merge without a reply is retried unchanged. */
export interface Merge {
  readonly state: State
  readonly confirmed: State
  readonly number: number
}

/** A unique number for a merge. Lua writes numbers of more than 14 digits inexactly. */
export const mergeNumber = Random.nextIntBetween(1, 99_999_999_999_999)

/**
 * Merges a process's local counts into Redis. `state` is its state, and `confirmed` the state that Redis last
 * confirmed. Counts since then are added once, and counts that Redis lost are restored. Of two windows the earlier one
 * is the true one. Of two bans, or a ban and its lifting, the later one counts.
 */
export const merge = Redis.script(
  (caller: Caller, { confirmed, number, state }: Merge, time: SharedTime) => [
    keyOf(caller),
    ...toNumbers(state),
    ...added(state, confirmed),
    number,
    ...timeOf(time)
  ],
  {
    numberOfKeys: 1,
    lua: script(`
local number = tonumber(ARGV[12])
local is_known = false
for nth = 9, #state do is_known = is_known or state[nth] == number end
local seconds = tonumber(ARGV[7])
local ends = math.min(tonumber(ARGV[8]), now + seconds * 1000)
if ends - seconds * 1000 > state[8] - state[7] * 1000 then
  state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, seconds, ends
end
for nth, count in ipairs({minute, day, refusals}) do
  local theirs, reset = tonumber(ARGV[count]), tonumber(ARGV[count + 1])
  reset = math.min(reset, now + seconds_of[count] * 1000)
  if now < reset then
    local here = used(count)
    state[count + 1] = now < state[count + 1] and math.min(reset, state[count + 1]) or reset
    state[count] = math.max(theirs, here + (is_known and 0 or tonumber(ARGV[8 + nth])))
  end
end
if not is_known then table.insert(state, 9, number) end
while #state > 24 do table.remove(state) end`)
  }
).withReturnType<Reply | null>()
