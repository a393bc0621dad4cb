/**
 * The rules of `Policy.ts` as Lua scripts for Redis 7 and Valkey, each in one atomic step on the shared time. A caller
 * is one key, and so one slot of a cluster. Its value holds the numbers of `toNumbers`.
 *
 * The shared time is Redis's clock plus a correction. A step of Redis's clock, or a failover to a server with another
 * clock, neither shortens nor extends a window or ban. Each process has an estimate of the shared time, continued by
 * its monotonic clock, and sends it with each script. A script whose time differs from the estimate by a second changes
 * nothing and returns `null`. The process then runs `compare` and, if Redis's clock has stepped, `correct`, so that the
 * shared time continues for all processes. Then it retries. A process that was suspended takes the shared time, because
 * the others have confirmed its correction.
 */
import { Random } from "effect"
import { Redis } from "effect/persistence"
import type { Limits } from "../../api/Plans.ts"
import { type Caller, isKey } from "../CallerStates.ts"
import { bans, dayWindow, minuteWindow, type Outcome, type State } from "../Policy.ts"
import { minStep } from "../SteadyClock.ts"

/** The shared time as a process estimates it, and Redis's correction as the process last read it: milliseconds. */
export interface SharedTime {
  readonly estimate: number
  readonly correction: number
}

/** The shared time in milliseconds, an outcome, and the caller's state. */
export type Reply = readonly [now: number, outcome: number, ...state: ReadonlyArray<number>]

const outcomes: ReadonlyArray<Outcome> = ["refused", "admitted", "banned"]

export const read = ([now, outcome, ...numbers]: Reply) => ({
  now,
  outcome: outcomes[outcome] ?? "refused",
  state: ofNumbers(numbers)
})

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

const keyOf = (caller: Caller): string => `petstore:limits:${caller}`

/**
 * Milliseconds that Redis keeps a caller after the last of its counts ended: a forward step of Redis's clock by as much
 * deletes no count that still counts.
 */
const expiryMargin = 86_400_000

const redisTime = `
local time = redis.call("TIME")
local redis_time = time[1] * 1000 + math.floor(time[2] / 1000)`

/**
 * A script around what `body` does with the caller's `state`: its counts are `{used, reset}` at 1, 3 and 5, its ban at
 * 7, and from 9 on the numbers of the last merges, of any process. Writes the state only if it changed. No count or ban
 * ends later than its length from now, whatever is stored.
 */
const script = (body: string): string =>
  `${redisTime}
local estimate, correction = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local now = redis_time + correction
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

local outcome = 0
${body}
local last = math.max(state[2], state[4], state[6], state[8] > 0 and state[8] + ${bans.memory * 1000} or 0)
local value = table.concat(state, " ")
if value ~= stored and last > now then
  redis.call("SET", KEYS[1], value, "PXAT", last - correction + ${expiryMargin})
end
return {now, outcome, unpack(state)}
`

const timeOf = ({ correction, estimate }: SharedTime) => [estimate, correction]

const clockKey = "petstore:limits:clock"

/**
 * Compares a process's estimate with the shared time, and confirms the correction if they agree. Returns Redis's time
 * and the correction in milliseconds, and whether a process confirmed it within the last second of Redis's clock: after
 * a step of Redis's clock none did. `estimate` is undefined for a process that does not know the shared time.
 */
export const compare = Redis.script(
  (estimate: number | undefined, correction: number) => [clockKey, estimate ?? "", correction],
  {
    numberOfKeys: 1,
    lua: `${redisTime}
local estimate, correction = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored, confirmed_at = string.match(redis.call("GET", KEYS[1]) or "", "^(%S+) (%S+)$")
if stored then correction, confirmed_at = tonumber(stored), tonumber(confirmed_at) end

local function is_recent(milliseconds)
  return confirmed_at and confirmed_at <= redis_time and redis_time - confirmed_at < milliseconds
end

local agrees = estimate and math.abs(redis_time + correction - estimate) < ${minStep}
if not stored and (agrees or not estimate) or agrees and not is_recent(${minStep / 4}) then
  redis.call("SET", KEYS[1], string.format("%d %d", correction, redis_time))
end
return {redis_time, correction, is_recent(${minStep}) and 1 or 0}
`
  }
).withReturnType<readonly [redisTime: number, correction: number, isConfirmed: number]>()

/** Changes the correction, unless another process has changed it meanwhile. Returns the correction there is then. */
export const correct = Redis.script((from: number, to: number) => [clockKey, from, to], {
  numberOfKeys: 1,
  lua: `${redisTime}
local stored = string.match(redis.call("GET", KEYS[1]) or "", "^%S+")
if stored and stored ~= ARGV[1] then return tonumber(stored) end
redis.call("SET", KEYS[1], string.format("%d %d", ARGV[2], redis_time))
return tonumber(ARGV[2])
`
}).withReturnType<number>()

/** Charges one request. */
export const charge = Redis.script(
  (caller: Caller, { perDay, perMinute }: Limits, time: SharedTime) => [
    keyOf(caller),
    perMinute,
    perDay,
    isKey(caller) ? 1 : 0,
    ...timeOf(time)
  ],
  {
    numberOfKeys: 1,
    lua: script(`
local per_minute, per_day, bannable = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == "1"
if now >= state[8] then
  if used(minute) < per_minute and used(day) < per_day then
    outcome = 1
    add(minute)
    add(day)
  elseif bannable then
    add(refusals)
    if state[refusals] >= math.max(per_minute, ${bans.minRejections}) then
      outcome = 2
      local repeated = state[7] > 0 and now < state[8] + ${bans.memory * 1000}
      local seconds = repeated and math.min(2 * state[7], ${bans.longest}) or ${bans.shortest}
      state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, seconds, now + seconds * 1000
    end
  end
end`)
  }
).withReturnType<Reply | null>()

/** Returns the state of a caller without a charge. */
export const peek = Redis.script((caller: Caller, time: SharedTime) => [keyOf(caller), ...timeOf(time)], {
  numberOfKeys: 1,
  lua: script("")
}).withReturnType<Reply | null>()

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

/** The content of a merge, and its number. A merge without a reply is sent again unchanged. */
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
