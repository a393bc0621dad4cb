/**
 * Declares every setting of the service: its environment variable, form, default and meaning.
 *
 * The check at the start of the process reads all declarations, and the table in docs/configuration.md equals them.
 */
import { Config, Data, Effect, Option, Redacted } from "effect"
import * as ConnectionString from "./ConnectionString.ts"
import { corsOrigins, keepAliveSeconds, maxConnections, trustedProxies } from "./HttpSettings.ts"
import * as RedisUrl from "./RedisUrl.ts"
import {
  any,
  connection,
  describeError,
  type Form,
  list,
  oneOf,
  secret,
  type Setting,
  text,
  validText,
  wholeNumber
} from "./Setting.ts"

export { corsOrigins, keepAliveSeconds, maxConnections, type Setting, trustedProxies }

const isUrl = (form: RegExp) => (value: string): boolean => {
  const href = URL.parse(value)?.href ?? ""
  try {
    decodeURIComponent(value)
    return form.test(href)
  } catch {
    return false
  }
}

const hostForm: Form = { form: "an IP address or a host name", isValid: (value) => /^[\w.:%-]+$/.test(value) }
const portRange = { min: 0, max: 65_535 }

export const host = text("HOST", hostForm, { byDefault: "0.0.0.0", meaning: "The address of the API." })

export const port = wholeNumber("PORT", portRange, {
  byDefault: 8080,
  meaning: "The port of the API. With 0 the system chooses a free port."
})

export const databaseUrl = connection(
  "DATABASE_URL",
  "postgres://user:password@host/database",
  ConnectionString.parse,
  {
    byDefault: "none: an embedded database in `DATA_DIR`",
    meaning: "One PostgreSQL endpoint, version 15 or later: a server, a balancer, a pooler or a managed address. " +
      "Without a database name, the name of the user is used. " +
      "A pooler such as PgBouncer needs the parameter `pgbouncer=true`. " +
      "Parameters like `?sslmode=verify-full&sslrootcert=/etc/ca.crt` are those of libpq (docs/database.md). " +
      "`PGSSLMODE` and libpq's other variables are not read."
  }
)

export const databaseMaxConnections = wholeNumber("DATABASE_MAX_CONNECTIONS", { min: 2, max: 1_000 }, {
  byDefault: 10,
  meaning: "The maximum of connections that a process opens to `DATABASE_URL`."
})

export const petCacheSeconds = wholeNumber("PET_CACHE_SECONDS", { min: 0, max: 3_600 }, {
  byDefault: 300,
  meaning: "The time for which a process serves a pet that it has read. Changes of pets in SQL are seen after it. " +
    "With 0 each request reads the database."
})

export const redisUrl = connection(
  "REDIS_URL",
  "redis://host:port, redis+sentinel://host:port/name or redis+cluster://host:port",
  RedisUrl.parse,
  {
    byDefault: "none: each process counts alone",
    meaning: "A Redis 7 or Valkey server, in which all processes count requests together. " +
      "With sentinels or a cluster, several hosts have commas between them (docs/redis.md). " +
      "Installations that share a server need databases of their own, as in `redis://host:6379/1`. " +
      "`rediss://`, `rediss+sentinel://` and `rediss+cluster://` use TLS, and take `ssl_ca_certs`, `ssl_certfile`, " +
      "`ssl_keyfile` and `ssl_password` (docs/redis.md)."
  }
)

const booleans = oneOf("REUSE_PORT", ["true", "false"])

export const reusePort: Setting<boolean> = {
  ...booleans,
  config: Config.map(Config.withDefault(booleans.config, "false"), (word) => word === "true"),
  byDefault: "`false`",
  meaning: "Whether several processes on this machine may listen on `PORT` together. " +
    "Linux gives each connection to one of them (docs/install.md)."
}

export const dataDir = text("DATA_DIR", { ...any, form: "a path" }, {
  byDefault: "./data",
  meaning: "The directory of the embedded database and of the admin token. " +
    "The service creates it if its parent exists. A symbolic link is resolved at the start."
})

export const managementHost = text("MANAGEMENT_HOST", hostForm, {
  byDefault: "127.0.0.1",
  meaning: "The address of the management port: `/healthz`, `/readyz`, `/metrics` and `/admin`."
})

export const managementPort = wholeNumber("MANAGEMENT_PORT", portRange, {
  byDefault: 9090,
  meaning: "The management port."
})

export const managementAllowedHosts = list(
  "MANAGEMENT_ALLOWED_HOSTS",
  "host names like petstore.internal, separated by commas",
  Option.liftPredicate((entry: string) => /^\w(?:[\w.-]*\w)?\.?$/.test(entry)),
  "Host names that requests to the management port may be for, for example the name of a Kubernetes service. " +
    "IP addresses, `localhost` and `MANAGEMENT_HOST` are always allowed."
)

/** The maximum length of an admin token. A longer one may not fit into a request head, which is limited to 16 KiB. */
const maxAdminTokenLength = 4_096

/** Whether a client can send the token in an `Authorization` header. White space around it is ignored. */
export const isAdminToken = (token: string): boolean =>
  /^[!-~]+$/.test(token.trim()) && token.trim().length <= maxAdminTokenLength

export const adminToken = secret("ADMIN_TOKEN", {
  form: `1 to ${maxAdminTokenLength} visible ASCII characters without spaces`,
  isValid: isAdminToken
}, {
  byDefault: "created at the first start, in `DATA_DIR/admin-token` (mode 0600)",
  meaning: "The bearer token of `/admin`."
})

/** An admin token beside `ADMIN_TOKEN`, with the name that its actions have in the audit log. */
export interface NamedAdminToken {
  readonly name: string
  readonly mayChange: boolean
  readonly token: Redacted.Redacted
}

const namedAdminToken = /^([\w.-]{1,40}):(read:)?([!-+\--~]{16,4096})$/

const namedAdminTokens = secret("ADMIN_TOKENS", {
  form: "entries like alice:token or dashboard:read:token, separated by commas, with 16 to 4096 visible ASCII " +
    "characters in each token",
  isValid: (value) => value.split(",").every((entry) => namedAdminToken.test(entry.trim()))
}, {
  byDefault: "none",
  meaning: "More bearer tokens of `/admin`, each with a name for the audit log: `alice:token`. " +
    "A token after `read:` can read and not change anything. `ADMIN_TOKEN` has the name `admin`."
})

export const adminTokens: Setting<ReadonlyArray<NamedAdminToken>> = {
  ...namedAdminTokens,
  config: Config.map(
    Config.option(namedAdminTokens.config),
    (value) =>
      Option.toArray(value).flatMap((tokens) => Redacted.value(tokens).split(",")).flatMap((entry) => {
        const [, name, read, token] = namedAdminToken.exec(entry.trim()) ?? []
        return name === undefined || token === undefined
          ? []
          : [{ name, mayChange: read === undefined, token: Redacted.make(token) }]
      })
  )
}

export const auditRetentionDays = wholeNumber("AUDIT_RETENTION_DAYS", { min: 1, max: 3_650 }, {
  byDefault: 400,
  meaning: "The days for which entries of the audit log are kept."
})

export const usageRetentionDays = wholeNumber("USAGE_RETENTION_DAYS", { min: 1, max: 30 }, {
  byDefault: 30,
  meaning: "The days for which the requests of each key are kept by hour."
})

export const drainSeconds = wholeNumber("DRAIN_SECONDS", { min: 0, max: 5 }, {
  byDefault: 0,
  meaning: "The time between SIGTERM and the end of listening, in seconds. " +
    "Meanwhile the process is not ready and closes each connection after its response."
})

export const otlpEndpoint = secret("OTEL_EXPORTER_OTLP_ENDPOINT", {
  form: "a URL like http://host:4318",
  isValid: isUrl(/^https?:\/\//)
}, {
  byDefault: "none: no export",
  meaning: "A collector for traces, metrics and logs. OpenTelemetry's other variables, such as " +
    "`OTEL_EXPORTER_OTLP_HEADERS`, configure the export."
})

const levels = oneOf("LOG_LEVEL", ["trace", "debug", "info", "warn", "error", "fatal", "none"])

export const logLevel = {
  ...levels,
  config: Config.withDefault(levels.config, "info"),
  byDefault: "`info`",
  meaning: "The lowest level of log lines that are written."
}

export const logFormat = {
  ...oneOf("LOG_FORMAT", ["json", "pretty"]),
  byDefault: "`pretty` on a terminal, else `json`",
  meaning: "The form of log lines, which go to standard error."
}

export const buildRevision = text("BUILD_REVISION", {
  form: "1 to 64 letters, digits, dots, hyphens and underscores",
  isValid: (value) => /^[\w.-]{1,64}$/.test(value)
}, {
  byDefault: "unknown",
  meaning: "The commit or the number of the build, which `/healthz` and `/metrics` show. The image has it."
})

const samplers = oneOf("OTEL_TRACES_SAMPLER", ["parentbased_always_on", "parentbased_traceidratio"])

export const otelTracesSampler = {
  ...samplers,
  config: Config.withDefault(samplers.config, "parentbased_always_on"),
  byDefault: "`parentbased_always_on`",
  meaning: "The traces that are exported: all, or a share of them. The caller's decision in `traceparent` comes first."
}

export const otelTracesSamplerRatio: Setting<number> = {
  name: "OTEL_TRACES_SAMPLER_ARG",
  config: Config.withDefault(
    Config.map(
      Config.schema(
        validText({
          form: "a number from 0 to 1",
          isValid: (value) => /^\s*(?:0|1|[01]?\.\d+)\s*$/.test(value) && Number(value) <= 1
        }),
        "OTEL_TRACES_SAMPLER_ARG"
      ),
      Number
    ),
    1
  ),
  form: "a number from 0 to 1",
  byDefault: "`1`",
  meaning: "The share of traces that `parentbased_traceidratio` exports."
}

/** All settings, in the order of the table in docs/configuration.md. */
export const all: ReadonlyArray<Setting<unknown>> = [
  host,
  port,
  databaseUrl,
  databaseMaxConnections,
  petCacheSeconds,
  redisUrl,
  reusePort,
  dataDir,
  managementHost,
  managementPort,
  managementAllowedHosts,
  adminToken,
  adminTokens,
  auditRetentionDays,
  usageRetentionDays,
  trustedProxies,
  drainSeconds,
  corsOrigins,
  keepAliveSeconds,
  maxConnections,
  logLevel,
  logFormat,
  buildRevision,
  otlpEndpoint,
  otelTracesSampler,
  otelTracesSamplerRatio
]

/** Settings have invalid values. The message has one line per setting. */
export class InvalidSettings extends Data.TaggedError("InvalidSettings")<{ readonly message: string }> {}

/** Reads all settings. Fails with `InvalidSettings`, which describes all errors, if any value is invalid. */
export const check = Effect.gen(function*() {
  const [, errors] = yield* Effect.partition(all, ({ config }) => Config.option(config))
  return yield* errors.length === 0
    ? Effect.void
    : new InvalidSettings({ message: errors.map(describeError).join("\n") })
})
