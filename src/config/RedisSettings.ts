import { Config, Duration } from "effect"
import * as Brand from "../api/Brand.ts"
import { Settings } from "./Settings.ts"

/** The options of the rate limiter on Redis (`rate-limit/RedisRateLimiter.ts`). */
export const redisOptions = Config.all({
  url: Settings.redisUrl.config,
  timeoutMs: Settings.redisTimeoutMs.config
}).pipe(
  Config.map(({ timeoutMs, url }) => ({
    url,
    timeout: Duration.millis(timeoutMs),
    urlName: "REDIS_URL",
    prefix: `${Brand.name}:limits:`
  }))
)
