import { Config, Data, Effect, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Brand from "../api/Brand.ts"
import { parseDatabaseUrl } from "./ConnectionUrls.ts"
import { findMistyped } from "./MistypedSettings.ts"
import { redisSettings } from "./RedisSettings.ts"
import * as SettingForms from "./SettingForms.ts"
import { label, list, makeForm, oneOf, optional, textForm, urlForm, wholeNumber, withDefault } from "./SettingForms.ts"

const host = textForm("an IP address or a host name", (text) => /^[\w.:%-]+$/.test(text))
const port = wholeNumber(0, 65_535)
const hostNames = list(
  "host names like api.internal, separated by commas",
  (entry) => /^\w(?:[\w.-]*\w)?\.?$/.test(entry) ? entry : undefined
)
const boolean = makeForm("true or false", (text) => text === "true" || (text === "false" ? false : undefined))

export const adminTokenFile = "admin-token"

/** At least 16 characters, so that a token is hard to guess. At most 4096, to fit into a request head of 16 KiB. */
export const adminTokenForm = makeForm("16 to 4096 visible ASCII characters without spaces", (text) => {
  const [, token] = /^\s*([!-~]{16,4096})\s*$/.exec(text) ?? []
  return token === undefined ? undefined : Redacted.make(token)
})

const parseNamedToken = (entry: string) => {
  const [, name, read, token] = /^([\w.-]{1,40}):(read:)?([!-+\--~]{16,4096})$/.exec(entry.trim()) ?? []
  return name === undefined || token === undefined
    ? undefined
    : { name, mayChange: read === undefined, token: Redacted.make(token) }
}

/** Does not use the helper `list`, because its error would quote the invalid entry with its token. */
const namedAdminTokens = makeForm(
  "entries like alice:token or dashboard:read:token, separated by commas, with 16 to 4096 visible ASCII characters " +
    "in each token",
  (text) => {
    const tokens = text.split(",").map(parseNamedToken)
    return tokens.every((token) => token !== undefined) ? tokens : undefined
  }
)

export const Settings = {
  host: withDefault("HOST", host, "0.0.0.0")("The listen address of the API."),
  port: withDefault("PORT", port, 8080)("The port of the API. With 0 the system chooses a free port."),
  databaseUrl: optional(
    "DATABASE_URL",
    urlForm("postgres://user:password@host/database", parseDatabaseUrl),
    "none: an embedded database in `DATA_DIR`"
  )(
    "One PostgreSQL endpoint, version 15 or later: a server, a load balancer, a pooler or a managed database. " +
      "Without a database name, the user name is used. A pooler such as PgBouncer needs the parameter " +
      "`pgbouncer=true`. Some libpq parameters are supported, such as `?sslmode=verify-full&sslrootcert=/etc/ca.crt` " +
      "(docs/database.md). The connection uses TLS, unless the host is this machine or `sslmode=disable` is written. " +
      "`PGSSLMODE` and libpq's other variables are not read."
  ),
  migrate: withDefault("MIGRATE", oneOf("on", "off"), "on")(
    "Whether a start migrates the schema of `DATABASE_URL`. With `off` it only checks the version, so its role needs " +
      "no right to change the schema, and `petstore migrate` migrates it (docs/database.md)."
  ),
  databaseMaxConnections: withDefault("DATABASE_MAX_CONNECTIONS", wholeNumber(2, 1_000), 10)(
    "The maximum number of connections that a process opens to `DATABASE_URL`."
  ),
  petCacheSeconds: withDefault("PET_CACHE_SECONDS", wholeNumber(0, 3_600), 300)(
    "The maximum time, in seconds, for which a process serves a pet from its cache. A change made in the database " +
      "becomes visible within that time. With 0 each request reads the database."
  ),
  ...redisSettings,
  reusePort: withDefault("REUSE_PORT", boolean, false)(
    "Whether several processes on this machine may listen on `PORT` together. " +
      "Linux gives each connection to one of them (docs/install.md)."
  ),
  dataDir: withDefault("DATA_DIR", textForm("a path", () => true), "./data")(
    "The directory of the embedded database and of the admin token. " +
      "The service creates it if its parent exists. A symbolic link is resolved at startup."
  ),
  managementHost: withDefault("MANAGEMENT_HOST", host, "127.0.0.1")(
    "The listen address of the management port: `/healthz`, `/readyz`, `/metrics` and `/admin`."
  ),
  managementPort: withDefault("MANAGEMENT_PORT", port, 9090)("The management port."),
  managementAllowedHosts: withDefault("MANAGEMENT_ALLOWED_HOSTS", hostNames, [], "none")(
    "Host names that are accepted in requests to the management port, for example the name of a Kubernetes service. " +
      "IP addresses, `localhost` and `MANAGEMENT_HOST` are always allowed."
  ),
  adminToken: optional(
    "ADMIN_TOKEN",
    adminTokenForm,
    `generated on first startup, in \`DATA_DIR/${adminTokenFile}\` (mode 0600)`
  )("The bearer token for `/admin`."),
  adminTokens: withDefault("ADMIN_TOKENS", namedAdminTokens, [], "none")(
    "Additional bearer tokens for `/admin`, each with a name for the audit log: `alice:token`. " +
      "A token prefixed with `read:` is read-only. `ADMIN_TOKEN` has the name `admin`."
  ),
  auditRetentionDays: withDefault("AUDIT_RETENTION_DAYS", wholeNumber(1, 3_650), 400)(
    "How many days audit log entries are kept."
  ),
  usageRetentionDays: withDefault("USAGE_RETENTION_DAYS", wholeNumber(1, 30), 30)(
    "How many days the hourly request counts of each key are kept."
  ),
  trustedProxies: SettingForms.trustedProxies,
  managementTrustedProxies: withDefault("MANAGEMENT_TRUSTED_PROXIES", SettingForms.proxies, [], "none")(
    "The proxies whose `X-Forwarded-For` the management port trusts. " +
      "If not set, an operator's address is where the connection comes from."
  ),
  environment: SettingForms.environment,
  drainSeconds: withDefault("DRAIN_SECONDS", wholeNumber(0, 5), 0)(
    "How many seconds the process keeps listening after SIGTERM. " +
      "Meanwhile `/readyz` fails, and each connection is closed after its response."
  ),
  corsOrigins: SettingForms.corsOrigins,
  keepAliveSeconds: withDefault("KEEP_ALIVE_SECONDS", wholeNumber(1, 3_600), 65)(
    "The time for which an idle connection stays open, in seconds. " +
      "It must be longer than the idle timeout of the proxy in front of the service."
  ),
  maxConnections: withDefault("MAX_CONNECTIONS", wholeNumber(1, 1_000_000), 2_000)(
    "The maximum number of open connections on each port. Further ones are closed at once."
  ),
  maxConnectionsPerAddress: withDefault("MAX_CONNECTIONS_PER_ADDRESS", wholeNumber(1, 1_000_000), 1_000)(
    "The maximum number of open connections of one client address (IPv4, or the /64 of IPv6) on each port. " +
      "Further ones are closed at once. The trusted proxies of the port are exempt."
  ),
  logLevel: withDefault("LOG_LEVEL", oneOf("trace", "debug", "info", "warn", "error", "fatal", "none"), "info")(
    "The lowest level of log lines that are written."
  ),
  logFormat: optional("LOG_FORMAT", oneOf("json", "pretty"), "`pretty` on a terminal, else `json`")(
    "The format of log lines, which go to standard error."
  ),
  accessLog: withDefault("ACCESS_LOG", boolean, true)(
    "Whether each request on the API port is logged. If not, metrics and all other log lines remain."
  ),
  buildRevision: withDefault("BUILD_REVISION", label(64), "unknown")(
    "The commit or the number of the build, which `/healthz` and `/metrics` show. The image sets it."
  ),
  otlpEndpoint: optional(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    textForm("a URL like http://host:4318", (text) => /^https?:\/\//.test(URL.parse(text)?.href ?? "")),
    "none: no export"
  )(
    "A collector for traces, metrics and logs. " +
      "OpenTelemetry's other variables, such as `OTEL_EXPORTER_OTLP_HEADERS`, configure the export."
  ),
  otelTracesSampler: withDefault(
    "OTEL_TRACES_SAMPLER",
    oneOf("parentbased_always_on", "parentbased_traceidratio"),
    "parentbased_always_on"
  )("The sampler exports all traces, or a share. A sampling decision in the caller's `traceparent` takes precedence."),
  otelTracesSamplerRatio: withDefault(
    "OTEL_TRACES_SAMPLER_ARG",
    makeForm(
      "a number from 0 to 1",
      (text) => /^\s*(?:0|1|[01]?\.\d+)\s*$/.test(text) && Number(text) <= 1 ? Number(text) : undefined
    ),
    1
  )("The sampling ratio for `parentbased_traceidratio`.")
}

export const allSettings: ReadonlyArray<SettingForms.Setting<unknown>> = Object.values(Settings)

export class InvalidSettings extends Data.TaggedError("InvalidSettings")<{ readonly message: string }> {}

/**
 * Fails if a setting is invalid, or if the name of a variable in `env` is probably a mistyped setting. The error lists
 * all such faults. An empty variable counts as not set.
 */
export const checkSettings = Effect.fnUntraced(function*(env: Readonly<Record<string, string | undefined>>) {
  const variables = Object.keys(env).filter((name) => env[name] !== "")
  const [, errors] = yield* Effect.partition(allSettings, ({ config }) => Config.option(config))
  const mistyped = findMistyped(variables, allSettings.map(({ name }) => name)).map(({ meant, name }) =>
    `${name}: no setting has this name. Did you mean ${meant}? Otherwise, unset ${name} for this process`
  )
  const message = [...mistyped, ...errors.map(SettingForms.describeError)].join("\n")
  return yield* message === "" ? Effect.void : new InvalidSettings({ message })
})

export const localUrl = ({ address }: HttpServer.HttpServer["Service"]): string =>
  HttpServer.formatAddress(address).replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//localhost:")

export const commandPrefix = import.meta.filename.endsWith(".ts") ? `npm run ${Brand.name} --` : Brand.name
