/**
 * The shared time as Lua scripts for Redis 7 and Valkey.
 *
 * The shared time is Redis's clock plus a clock offset. A step of Redis's clock, or a failover to a server with another
 * clock, neither shortens nor extends a window or ban. Each process has an estimate of the shared time, continued by
 * its monotonic clock, and sends it with each script of `RedisScripts.ts`. A script whose time differs from the
 * estimate by a second changes nothing and returns `null`. The process then runs `compare` and, if Redis's clock has
 * stepped, `correct`, so that the shared time continues for all processes. Then it retries. A process that was
 * suspended takes the shared time, because the others have confirmed its clock offset.
 */
import { Redis } from "effect/persistence"
import { minStep } from "../SteadyClock.ts"

/** The shared time as a process estimates it, and the clock offset as the process last read it: milliseconds. */
export interface SharedTime {
  readonly estimate: number
  readonly clockOffset: number
}

/** The clock offset, and the time of Redis's clock at which a process last confirmed it. */
const clockKey = "petstore:limits:clock"

/** The key of a shard's clock in a cluster. `tag` is a hash tag in a slot of the shard. */
export const clockKeyOf = (tag: string): string => `${clockKey}:{${tag}}`

/** Lua that reads Redis's clock. */
export const readRedisTime = `
local time = redis.call("TIME")
local redis_time = time[1] * 1000 + math.floor(time[2] / 1000)`

/**
 * Compares a process's estimate with the shared time, and confirms the clock offset if they agree. Returns Redis's time
 * and the clock offset in milliseconds, and whether a process confirmed it within the last second of Redis's clock.
 * After a step of Redis's clock none did. `estimate` is undefined for a process that does not know the shared time.
 */
export const compare = Redis.script(
  (estimate: number | undefined, clockOffset: number, key = clockKey) => [key, estimate ?? "", clockOffset],
  {
    numberOfKeys: 1,
    lua: `${readRedisTime}
local estimate, offset = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored, confirmed_at = string.match(redis.call("GET", KEYS[1]) or "", "^(%S+) (%S+)$")
if stored then offset, confirmed_at = tonumber(stored), tonumber(confirmed_at) end

local function is_recent(milliseconds)
  return confirmed_at and confirmed_at <= redis_time and redis_time - confirmed_at < milliseconds
end

local agrees = estimate and math.abs(redis_time + offset - estimate) < ${minStep}
if not stored and (agrees or not estimate) or agrees and not is_recent(${minStep / 4}) then
  redis.call("SET", KEYS[1], string.format("%d %d", offset, redis_time))
end
return {redis_time, offset, is_recent(${minStep}) and 1 or 0}
`
  }
).withReturnType<readonly [redisTime: number, clockOffset: number, isConfirmed: number]>()

/** Changes the clock offset, unless another process has changed it meanwhile. Returns the resulting clock offset. */
export const correct = Redis.script((from: number, to: number, key = clockKey) => [key, from, to], {
  numberOfKeys: 1,
  lua: `${readRedisTime}
local stored = string.match(redis.call("GET", KEYS[1]) or "", "^%S+")
if stored and stored ~= ARGV[1] then return tonumber(stored) end
redis.call("SET", KEYS[1], string.format("%d %d", ARGV[2], redis_time))
return tonumber(ARGV[2])
`
}).withReturnType<number>()
