import { Config, Duration, Effect } from "effect"
import * as Brand from "../api/Brand.ts"
import { describeChain } from "../observability/ErrorChain.ts"
import { counter, gauge, histogramOfSeconds } from "../observability/MetricConstructors.ts"
import { parseRedisUrl } from "./RedisUrl.ts"
import { optional, urlForm, wholeNumber, withDefault } from "./SettingForms.ts"

export const redisSettings = {
  redisUrl: optional(
    "REDIS_URL",
    urlForm("redis://host:port, redis+sentinel://host:port/name or redis+cluster://host:port", parseRedisUrl),
    "none: each process counts requests on its own"
  )(
    "A Redis 7 or Valkey server in which all processes share request counts. For Sentinel or a cluster, " +
      "separate several hosts with commas (docs/redis.md). If installations share a server, give each its own " +
      "database, as in `redis://host:6379/1`. `rediss://`, `rediss+sentinel://` and `rediss+cluster://` use TLS, and " +
      "take `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile` and `ssl_password` (docs/redis.md)."
  ),
  redisTimeoutMs: withDefault("REDIS_TIMEOUT_MS", wholeNumber(10, 10_000), 250)(
    "How long a request waits for a reply from Redis, in milliseconds. " +
      "After a timeout, the process counts requests on its own until Redis replies again."
  )
}

const boundaries = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export const redisMetrics = {
  durations: histogramOfSeconds(
    "rate_limit_redis_duration",
    "Duration of round trips to Redis, including those that timed out.",
    boundaries
  ),
  fallback: gauge(
    "rate_limit_fallback",
    "1 while a Redis server does not respond and this process counts requests on its own, else 0."
  ),
  localDecisions: counter("rate_limit_fallback_decisions_total", "Rate limit decisions made without Redis.")
}

/** The options of `rate-limit/RedisRateLimiter.ts`, from settings. */
export const redisOptions = Config.all({
  url: redisSettings.redisUrl.config,
  timeoutMs: redisSettings.redisTimeoutMs.config
}).pipe(
  Config.map(({ timeoutMs, url }) => ({
    url,
    timeout: Duration.millis(timeoutMs),
    prefix: `${Brand.name}:limits:`,
    metrics: redisMetrics,
    logDown: (place: string, cause: unknown) =>
      Effect.logWarning(
        `${redisSettings.redisUrl.name}: ${place} cannot be used (${describeChain(cause)}). ` +
          "This process counts requests on its own."
      )
  }))
)
