import { assert, describe, expect, it } from "@effect/vitest"
import { Cause, Config, ConfigProvider, Effect } from "effect"
import { parseEnv } from "node:util"
import { findMistyped } from "../../src/config/MistypedSettings.ts"
import { allSettings, checkSettings } from "../../src/config/Settings.ts"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import { readPage } from "../support/Documents.ts"

/** Reads `config` from `env` as the service reads it from its environment. */
const read = <A>(config: Config.Config<A>, env: Readonly<Record<string, string>>) =>
  config.parse(ConfigProvider.fromEnv({ env }))

/** Valid and invalid texts of a setting that is a number. */
const wholeNumbers = (min: string, max: string) =>
  [[` ${min} `, max], [`${Number(min) - 1}`, `${Number(max) + 1}`, "1.5", "1e1", "0x9", "many", "NaN"]] as const

const tokens = (...lengths: ReadonlyArray<number>) => lengths.map((length) => `a:${"x".repeat(length)}`)

/** Valid and invalid texts of each other setting. */
const examples: Readonly<Record<string, readonly [valid: ReadonlyArray<string>, invalid: ReadonlyArray<string>]>> = {
  HOST: [["::1", "0.0.0.0", "localhost", "fe80::1%eth0"], ["http://h", "a b"]],
  DATABASE_URL: [["postgres://a:1"], ["secret", "mysql://u:secret@h", "postgres:secret@h", "postgres://u:secret%zz@h"]],
  REDIS_URL: [["rediss://h:1/15"], ["http://secret@h", "redis:secret", "redis://h/secret", "redis://u:secret%zz@h"]],
  REUSE_PORT: [["true", "false"], ["yes", "1"]],
  DATA_DIR: [["./a b"], []],
  MANAGEMENT_HOST: [["127.0.0.1"], ["http://h"]],
  MANAGEMENT_ALLOWED_HOSTS: [["a, b.internal", ","], ["a,http://petstore", "a:1", "-"]],
  ADMIN_TOKEN: [["x".repeat(16), ` ${"!".repeat(16)} `, "x".repeat(4_096)], ["x".repeat(15), "x".repeat(4_097)]],
  ADMIN_TOKENS: [
    [...tokens(16, 4_096), "a.b-c:read:0123456789:abcdef, d:0123456789abcdef"],
    [...tokens(15, 4_097), "secret-0123456789", ":0123456789abcdef", "a:0123456789abcdef,", "a b:0123456789abcdef"]
  ],
  TRUSTED_PROXIES: [["10.0.0.1, 10.0.0.0/8,2001:db8::/32"], ["localhost", "1.2.3.4,10.0.0.0/33"]],
  MANAGEMENT_TRUSTED_PROXIES: [["10.0.0.0/8"], ["localhost"]],
  ENVIRONMENT: [["production", "eu-1.staging"], ["a b", "x".repeat(41)]],
  CORS_ORIGINS: [["*", "https://a.example, http://localhost:3000"], ["a", "https://a.example/", "https://a.example,b"]],
  LOG_LEVEL: [["trace", "none"], ["Info", "loud"]],
  MIGRATE: [["on", "off"], ["true", "no"]],
  LOG_FORMAT: [["json", "pretty"], ["text"]],
  ACCESS_LOG: [["true", "false"], ["off"]],
  BUILD_REVISION: [["unknown", "79d1fb3", "1.0.0-rc.1"], ["a b", "\"", "x".repeat(65)]],
  OTEL_EXPORTER_OTLP_ENDPOINT: [["http://h:4318", "https://h/otlp"], ["h:4318", "ftp://secret@h"]],
  OTEL_TRACES_SAMPLER: [["parentbased_always_on", "parentbased_traceidratio"], ["always_on"]],
  OTEL_TRACES_SAMPLER_ARG: [["0", "1", "0.01", ".5"], ["2", "1.1", "-1", "1e-2", "half"]]
}

describe("Settings", () => {
  it.effect.each(allSettings)("accept a valid $name, and name an invalid one", (setting) =>
    Effect.gen(function*() {
      const { config, form, name } = setting
      const [, min, max] = /^a whole number from (\d+) to (\d+)$/.exec(form) ?? []
      const [valid, invalid] = examples[name] ?? wholeNumbers(min ?? assert.fail("no examples"), max ?? "")
      for (const text of valid) yield* read(config, { [name]: text })
      const [empty, absent] = yield* Effect.forEach([{ [name]: "" }, {}], (env) => read(Config.option(config), env))
      assert.deepStrictEqual(empty, absent)
      for (const text of invalid) {
        const message = describeCause(Cause.fail(yield* Effect.flip(read(config, { [name]: text }))))
        assert.isTrue(message.startsWith(`${name}: expected ${form}`), `${text}: ${message}`)
        assert.notInclude(message, "secret")
      }
    }))

  it("match the table of docs/configuration.md", async () => {
    const rows = allSettings.map(({ defaultText, form, meaning, name }) =>
      `| \`${name}\` | ${form} | ${defaultText} | ${meaning} |\n`
    )
    const page = readPage("docs/configuration.md").replace(/(?<=\|---\|\n)(?:\|.*\n)+/, () => rows.join(""))
    await expect(page).toMatchFileSnapshot("../../docs/configuration.md")
  })
})

/** The lines of a comment. */
const comment = (text: string): ReadonlyArray<string> =>
  [...text.matchAll(/\S.{0,116}(?= |$)/g)].map(([line]) => `# ${line}`)

/** The text of `.env.example`. `npx vitest run test/config --update` writes it. */
const example = [
  "# The settings of the service. Copy this file to .env, and remove the # before the settings that you change.",
  "# `npm start` and `npm run petstore` read it, as does a container with `docker run --env-file .env`. For npm, put a",
  "# value that contains # in double quotes. Docker keeps quotes as a part of the value.",
  "# docs/configuration.md names OpenTelemetry's other variables. docs/database.md and docs/redis.md describe TLS.",
  ...allSettings.flatMap(({ defaultText, form, meaning, name }) => [
    "",
    ...comment(meaning),
    ...comment(`Form: ${form}. Default: ${defaultText}.`),
    `#${name}=${/^`([^`]*)`$/.exec(defaultText)?.[1] ?? ""}`
  ]),
  ""
].join("\n")

describe(".env.example", () => {
  it("lists each setting with its meaning, form and default", async () => {
    await expect(example).toMatchFileSnapshot("../../.env.example")
  })

  it.effect("has valid defaults when Node reads the file", () => {
    const env = parseEnv(example.replaceAll(/^#(?=[A-Z])/gm, ""))
    assert.sameMembers(Object.keys(env), allSettings.map(({ name }) => name))
    assert.include(env, { PORT: "8080", DATABASE_URL: "" })
    const settings = ConfigProvider.fromEnv({ env: { ...env } as Record<string, string> })
    return Effect.provideService(checkSettings({}), ConfigProvider.ConfigProvider, settings)
  })
})

/** Names of variables that common environments set, and that are no settings. */
const usual = [
  // A shell, systemd, npm, Node and a CI.
  "PATH HOME HOSTNAME HOSTTYPE LOGNAME SHELL SHLVL TERM USER PWD OLDPWD LANG LC_ALL TZ EDITOR PAGER TMPDIR MAIL SORT",
  "INVOCATION_ID JOURNAL_STREAM STATE_DIRECTORY LISTEN_FDS LISTEN_PID NOTIFY_SOCKET SYSTEMD_EXEC_PID XDG_DATA_DIRS",
  "NODE_ENV NODE_OPTIONS NODE_VERSION YARN_VERSION NODE_EXTRA_CA_CERTS NODE_COMPILE_CACHE npm_config_port npm_config_host",
  "npm_package_name INIT_CWD CI GITHUB_TOKEN GITHUB_ENV RUNNER_TEMP CI_ENVIRONMENT_NAME CI_COMMIT_SHA BUILD_ID BUILD_NUMBER",
  "POST HOSTS GHOST PORTS SPORT host port MPORT XPORT LOG_FILE LOG_DIR DATA DATA_PATH DATADIR2 ENV NODE_ENVIRONMENT",
  // Kubernetes and Docker's links, for services of these names.
  ...["REDIS", "DATABASE", "PETSTORE", "POSTGRES", "MANAGEMENT", "ADMIN", "LOG", "DATA"].map((name) =>
    `${name}_SERVICE_HOST ${name}_SERVICE_PORT ${name}_SERVICE_PORT_HTTP ${name}_PORT_80_TCP ${name}_PORT_80_TCP_ADDR ` +
    `${name}_PORT_80_TCP_PORT ${name}_PORT_80_TCP_PROTO ${name}_NAME ${name}_ENV_VERSION`
  ),
  "REDIS_PORT DATABASE_PORT PETSTORE_PORT REDIS_HOST DATABASE_HOST DATABASE_NAME DATABASE_USER DATABASE_PASSWORD",
  "KUBERNETES_SERVICE_HOST KUBERNETES_PORT POD_NAME POD_IP NAMESPACE PGHOST PGPORT PGDATABASE PGSSLMODE",
  // OpenTelemetry and the petstore command.
  "OTEL_SERVICE_NAME OTEL_RESOURCE_ATTRIBUTES OTEL_SDK_DISABLED OTEL_TRACES_EXPORTER OTEL_METRICS_EXPORTER",
  "OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_TIMEOUT PETSTORE_ADMIN_URL"
].flatMap((line) => line.split(" "))

describe("A variable with the mistyped name of a setting", () => {
  const settings = allSettings.map(({ name }) => name)

  it.each([
    ["DATABASE_ULR", "DATABASE_URL"],
    ["DATABSE_URL", "DATABASE_URL"],
    ["DATABASE_URLL", "DATABASE_URL"],
    ["DATABASE-URL", "DATABASE_URL"],
    ["database_url", "DATABASE_URL"],
    ["REDISURL", "REDIS_URL"],
    ["ADMIN_TOKNE", "ADMIN_TOKEN"],
    ["PROT", "PORT"],
    ["HSOT", "HOST"]
  ])("ends the start with both names: %s, %s", (name, meant) => {
    assert.deepStrictEqual(findMistyped([...usual, name], settings), [{ name, meant }])
  })

  it("is not found in the names of common environments, nor beside the setting that it resembles", () => {
    assert.deepStrictEqual(findMistyped([...usual, ...settings], settings), [])
    assert.deepStrictEqual(findMistyped(usual, settings), [])
    assert.deepStrictEqual(findMistyped(["DATABASE_URL", "DATABASE_URI"], settings), [])
  })

  it.effect("is reported beside the invalid values of other settings", () => {
    const check = Effect.flip(checkSettings({ DATABASE_ULR: "x" }))
    return Effect.map(
      Effect.provideService(check, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { PORT: "x" } })),
      ({ message }) => assert.match(message, /^DATABASE_ULR: .*Did you mean DATABASE_URL\?.*\nPORT: expected a whole/)
    )
  })

  it.effect("is no fault if it is empty, and is one beside an empty setting that it means", () => {
    const check = (env: Readonly<Record<string, string>>) =>
      Effect.provideService(checkSettings(env), ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))
    return Effect.gen(function*() {
      yield* check({ DATABASE_ULR: "" })
      const { message } = yield* Effect.flip(check({ DATABASE_URL: "", DATABASE_ULR: "x" }))
      assert.include(message, "Did you mean DATABASE_URL?")
    })
  })
})
