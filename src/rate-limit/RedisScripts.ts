/**
 * The rule of `Rule.ts` as Lua, for Redis 7 and Valkey to run in one atomic step on their own clock. A caller is one
 * key, and so one slot of a cluster: its value is the numbers of `toNumbers`, its expiry the end of the last of them.
 */
import { Random } from "effect"
import { Redis } from "effect/persistence"
import type { Limits } from "../api/Plans.ts"
import { type Caller, isKey } from "./Callers.ts"
import { bans, dayWindow, minuteWindow, type Outcome, type State } from "./Rule.ts"

/** What a script answers: Redis's clock in milliseconds since the Unix epoch, an outcome, and the caller's state. */
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
 * Around what a script does with the caller's `state`: its counts are `{used, reset}` at 1, 3 and 5, its ban at 7, and
 * from 9 on the numbers of the last merges, of any process.
 */
const script = (body: string): string => `
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = {}
for number in string.gmatch(redis.call("GET", KEYS[1]) or "0 0 0 0 0 0 0 0 0", "%d+") do
  state[#state + 1] = tonumber(number)
end
local minute, day, refusals = 1, 3, 5

local function used(count)
  return now < state[count + 1] and state[count] or 0
end

local function add(count, seconds)
  if now >= state[count + 1] then
    state[count], state[count + 1] = 0, now + seconds * 1000
  end
  state[count] = state[count] + 1
end

local function keep()
  local last = math.max(state[2], state[4], state[6], state[8] > 0 and state[8] + ${bans.memory * 1000} or 0)
  if last > now then redis.call("SET", KEYS[1], table.concat(state, " "), "PXAT", last) end
end

local outcome = 0
${body}
return {now, outcome, unpack(state)}
`

/** Charges one request. */
export const charge = Redis.script(
  (caller: Caller, { perDay, perMinute }: Limits) => [keyOf(caller), perMinute, perDay, isKey(caller) ? 1 : 0],
  {
    numberOfKeys: 1,
    lua: script(`
local per_minute, per_day, bannable = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == "1"
if now >= state[8] then
  if used(minute) < per_minute and used(day) < per_day then
    outcome = 1
    add(minute, ${minuteWindow.seconds})
    add(day, ${dayWindow.seconds})
    keep()
  elseif bannable then
    add(refusals, ${minuteWindow.seconds})
    if state[refusals] >= math.max(per_minute, ${bans.fewestRefusals}) then
      outcome = 2
      local repeated = state[7] > 0 and now < state[8] + ${bans.memory * 1000}
      local seconds = repeated and math.min(2 * state[7], ${bans.longest}) or ${bans.shortest}
      state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, seconds, now + seconds * 1000
    end
    keep()
  end
end`)
  }
).withReturnType<Reply>()

/** Only looks. */
export const peek = Redis.script((caller: Caller) => [keyOf(caller)], { numberOfKeys: 1, lua: script("") })
  .withReturnType<Reply>()

/** Lifts a ban: `unban` of the rule. */
export const unban = Redis.script((caller: Caller) => [keyOf(caller)], {
  numberOfKeys: 1,
  lua: script(`
state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, 0, now
keep()`)
}).withReturnType<Reply>()

/** What was counted in `state` and not in `before`: of the minute, of the day, of refusals. */
const added = (state: State, before: State): ReadonlyArray<number> =>
  (["minute", "day", "refusals"] as const).map((name) => {
    const [now, then] = [state[name], before[name]]
    return (now?.used ?? 0) - (then !== undefined && then.resetAt === now?.resetAt ? then.used : 0)
  })

/** What a merge has to tell, and a number for it: one whose answer is lost is sent again as it was. */
export interface Merge {
  readonly state: State
  readonly confirmed: State
  readonly number: number
}

/** A number for a merge that no other has: Lua writes those of more than 14 digits inexactly. */
export const mergeNumber = Random.nextIntBetween(1, 99_999_999_999_999)

/**
 * Brings to Redis what a process counted without it: `state`, which was `confirmed` when Redis last told it. What was
 * counted since is added there, once; what Redis lost is there again. Of two windows the earlier counts, which is
 * the true one; of two bans, or a ban and its lifting, the one that began later.
 */
export const merge = Redis.script(
  (caller: Caller, { confirmed, number, state }: Merge) => [
    keyOf(caller),
    ...toNumbers(state),
    ...added(state, confirmed),
    number
  ],
  {
    numberOfKeys: 1,
    lua: script(`
local number = tonumber(ARGV[12])
local is_known = false
for nth = 9, #state do is_known = is_known or state[nth] == number end
local seconds, ends = tonumber(ARGV[7]), tonumber(ARGV[8])
if ends - seconds * 1000 > state[8] - state[7] * 1000 then
  state[refusals], state[refusals + 1], state[7], state[8] = 0, 0, seconds, ends
end
for nth, count in ipairs({minute, day, refusals}) do
  local theirs, reset = tonumber(ARGV[count]), tonumber(ARGV[count + 1])
  if now < reset then
    local here = used(count)
    state[count + 1] = now < state[count + 1] and math.min(reset, state[count + 1]) or reset
    state[count] = math.max(theirs, here + (is_known and 0 or tonumber(ARGV[8 + nth])))
  end
end
if not is_known then table.insert(state, 9, number) end
while #state > 24 do table.remove(state) end
keep()`)
  }
).withReturnType<Reply>()
