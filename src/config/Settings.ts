/**
 * Declares every setting of the service: its environment variable, form, default and meaning.
 *
 * The check at the start of the process reads all declarations, and the table in the README equals them.
 */
import { Config, Data, Effect, Option, Redacted, Result, Schema } from "effect"
import { IpInterface, IpNetwork } from "effect/net"
import * as Issue from "../api/Issue.ts"
import * as ConnectionString from "./ConnectionString.ts"
import * as RedisUrl from "./RedisUrl.ts"

/** An environment variable. An empty variable counts as not set. */
export interface Setting<A> {
  readonly name: string
  /**
   * Reads the setting. Fails with a `ConfigError` if the value is invalid, or if it is not set and has no default. The
   * error names the setting and the form, but never a value that can contain a secret.
   */
  readonly config: Config.Config<A>
  /** The form of a valid value, in words. */
  readonly form: string
  /** The default, in Markdown. */
  readonly byDefault: string
  /** The meaning, in Markdown. */
  readonly meaning: string
}

/** Text in a form: `isValid` accepts it. The error message of other text is "Expected", then the form. */
interface Form {
  readonly form: string
  readonly isValid: (text: string) => boolean
}

/** The documentation of a setting, and its default. */
interface Words<Default> {
  readonly byDefault: Default
  readonly meaning: string
}

const validText = ({ form, isValid }: Form) =>
  Schema.String.check(Schema.makeFilter(isValid, { message: `Expected ${form}` }))

const quoted = (text: string | number): string => `\`${text}\``

const any: Form = { form: "text", isValid: () => true }

const text = (name: string, form: Form, { byDefault, meaning }: Words<string>): Setting<string> => ({
  name,
  config: Config.withDefault(Config.schema(validText(form), name), byDefault),
  form: form.form,
  byDefault: quoted(byDefault),
  meaning
})

/** A setting whose value can contain a secret. `words.byDefault` describes the behavior without it. */
const secret = (name: string, form: Form, words: Words<string>): Setting<Redacted.Redacted> => ({
  name,
  config: Config.schema(Schema.RedactedFromValue(validText(form)), name),
  form: form.form,
  ...words
})

/** A URL with parameters. `parse` fails with the words that complete "Expected … with", or with none. */
const connection = <A>(
  name: string,
  form: string,
  parse: (value: string) => Result.Result<A, string>,
  words: Words<string>
): Setting<Redacted.Redacted> => {
  const valid = Schema.String.check(Schema.makeFilter((value) =>
    Result.match(parse(value), {
      onSuccess: () => true,
      onFailure: (problem) => `Expected ${form}${problem === "" ? "" : ` with ${problem}`}`
    })
  ))
  return { name, config: Config.schema(Schema.RedactedFromValue(valid), name), form, ...words }
}

/** A whole number from `min` to `max`, both included. */
export const wholeNumber = (
  name: string,
  { max, min }: { readonly min: number; readonly max: number },
  { byDefault, meaning }: Words<number>
): Setting<number> => {
  const form = `a whole number from ${min} to ${max}`
  const isValid = (value: string): boolean => /^\s*\d+\s*$/.test(value) && min <= Number(value) && Number(value) <= max
  const config = Config.map(Config.schema(validText({ form, isValid }), name), Number)
  return { name, config: Config.withDefault(config, byDefault), form, byDefault: quoted(byDefault), meaning }
}

const entriesOf = (value: string): ReadonlyArray<string> =>
  value.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "")

/** Entries separated by commas, none by default. The error message names the first entry that `parse` rejects. */
const list = <A>(
  name: string,
  form: string,
  parse: (entry: string) => Option.Option<A>,
  meaning: string
): Setting<ReadonlyArray<A>> => {
  const valid = Schema.String.check(Schema.makeFilter((value) => {
    const invalid = entriesOf(value).find((entry) => Option.isNone(parse(entry)))
    return invalid === undefined ? true : `Expected ${form}, not "${invalid}"`
  }))
  const config = Config.map(
    Config.withDefault(Config.schema(valid, name), ""),
    (value) => entriesOf(value).flatMap((entry) => Option.toArray(parse(entry)))
  )
  return { name, config, form, byDefault: "none", meaning }
}

/** A setting that is one of `words`. */
const oneOf = <const Word extends string>(name: string, words: ReadonlyArray<Word>) => {
  const form = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`
  return { name, form, config: Config.schema(Schema.Literals(words).annotate({ message: `Expected ${form}` }), name) }
}

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
    meaning: "A PostgreSQL server, version 15 or later, or several with commas between them: the one that accepts " +
      "writes is used. Without a database name, the name of the user is used. " +
      "PgBouncer needs `ignore_startup_parameters = statement_timeout`. " +
      "Parameters like `?sslmode=verify-full&sslrootcert=/etc/ca.crt` are those of libpq (see TLS). " +
      "`PGSSLMODE` and libpq's other variables are not read."
  }
)

export const databaseMaxConnections = wholeNumber("DATABASE_MAX_CONNECTIONS", { min: 2, max: 1_000 }, {
  byDefault: 10,
  meaning: "The maximum of connections that a process opens to `DATABASE_URL`."
})

export const redisUrl = connection(
  "REDIS_URL",
  "redis://host:port, redis+sentinel://host:port/name or redis+cluster://host:port",
  RedisUrl.check,
  {
    byDefault: "none: each process counts alone",
    meaning: "A Redis 7 or Valkey server, in which all processes count requests together. " +
      "With sentinels or a cluster, several hosts have commas between them (docs/redis.md). " +
      "Installations that share a server need databases of their own, as in `redis://host:6379/1`. " +
      "`rediss://`, `rediss+sentinel://` and `rediss+cluster://` use TLS, and take `ssl_ca_certs`, `ssl_certfile`, " +
      "`ssl_keyfile` and `ssl_password` (see TLS)."
  }
)

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

export const trustedProxies = list(
  "TRUSTED_PROXIES",
  "IP addresses and networks (CIDR), separated by commas",
  (entry) =>
    Option.map(Result.getSuccess(IpInterface.fromString(entry, { prefix: "optional" })), IpNetwork.fromInterface),
  "The proxies whose `X-Forwarded-For` the service trusts. It reads the header from the right."
)

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
  meaning: "A collector for traces, metrics and logs. OpenTelemetry's other `OTEL_…` variables configure the export."
})

export const otelServiceName = text("OTEL_SERVICE_NAME", any, {
  byDefault: "petstore",
  meaning: "The service name in traces, metrics and logs."
})

export const corsOrigins = list(
  "CORS_ORIGINS",
  "origins like https://shop.example, separated by commas, or *",
  Option.liftPredicate((entry: string) => entry === "*" || URL.parse(entry)?.origin === entry),
  "The origins whose pages may call the API from a browser. `*` allows all."
)

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

const samplers = oneOf("OTEL_TRACES_SAMPLER", [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio"
])

export const otelTracesSampler = {
  ...samplers,
  config: Config.withDefault(samplers.config, "parentbased_always_on"),
  byDefault: "`parentbased_always_on`",
  meaning: "The traces that are exported. With `parentbased_…` the caller's decision in `traceparent` comes first."
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
  meaning: "The share of traces that `traceidratio` and `parentbased_traceidratio` export."
}

/** All settings, in the order of the table in the README. */
export const all: ReadonlyArray<Setting<unknown>> = [
  host,
  port,
  databaseUrl,
  databaseMaxConnections,
  redisUrl,
  dataDir,
  managementHost,
  managementPort,
  managementAllowedHosts,
  adminToken,
  trustedProxies,
  drainSeconds,
  corsOrigins,
  logLevel,
  logFormat,
  otlpEndpoint,
  otelServiceName,
  otelTracesSampler,
  otelTracesSamplerRatio
]

/** Whether `DATABASE_URL` selects a server that accepts no writes. */
const isReplica = Config.map(Config.option(databaseUrl.config), (url) =>
  Option.match(url, {
    onNone: () => false,
    onSome: (value) =>
      Result.match(ConnectionString.parse(Redacted.value(value)), {
        onSuccess: ConnectionString.isReplica,
        onFailure: () => false
      })
  }))

/** Settings have invalid values. The message has one line per setting. */
export class InvalidSettings extends Data.TaggedError("InvalidSettings")<{ readonly message: string }> {}

/** Describes the error of an invalid setting by its name and form. */
export const describeError = (error: Config.ConfigError): string =>
  Schema.isSchemaError(error.cause) ? Issue.describe(error.cause.issue, (path) => path.join("_")) : error.message

/** What replicas lack: they have no database to keep counts in. */
const replicaNeedsRedis = "REDIS_URL: expected a value, because DATABASE_URL selects a standby (target_session_attrs)"

/** Reads all settings. Fails with `InvalidSettings`, which describes all errors, if any value is invalid. */
export const check = Effect.gen(function*() {
  const [, errors] = yield* Effect.partition(all, ({ config }) => Config.option(config))
  const problems = errors.map(describeError)
  if (problems.length === 0 && (yield* isReplica) && Option.isNone(yield* Config.option(redisUrl.config))) {
    problems.push(replicaNeedsRedis)
  }
  return yield* problems.length === 0 ? Effect.void : new InvalidSettings({ message: problems.join("\n") })
})
