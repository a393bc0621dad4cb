/** Tests the form of each setting, the check of all settings, and the tables of settings in the documents. */
import { assert, describe, expect, it } from "@effect/vitest"
import { Cause, Config, ConfigProvider, Effect, Exit, Redacted } from "effect"
import { IpNetwork } from "effect/net"
import { readFileSync } from "node:fs"
import { parseEnv } from "node:util"
import { allSettings, checkSettings, Settings } from "../../src/config/Settings.ts"
import * as LogLines from "../../src/observability/LogLines.ts"

/** Reads `config` from `env` as the service reads it from its environment. */
const read = <A>(config: Config.Config<A>, env: Readonly<Record<string, string>>) =>
  config.parse(ConfigProvider.fromEnv({ env }))

const check = (env: Readonly<Record<string, string>>) =>
  Effect.provideService(checkSettings, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env }))

/** Valid and invalid texts of each setting. */
const examples: Readonly<Record<string, { valid: ReadonlyArray<string>; invalid: ReadonlyArray<string> }>> = {
  HOST: { valid: ["::1", "0.0.0.0", "localhost", "fe80::1%eth0"], invalid: ["http://h", "a b"] },
  PORT: { valid: ["0", "65535"], invalid: ["65536", "-1", "1.5", "1e1", "0x9", "many", "NaN"] },
  DATABASE_URL: {
    valid: [
      "postgres://a",
      "postgresql://u:p%40@h:1/d?host=/run",
      "POSTGRES:///d",
      "postgres://h\n",
      "postgres://a:1"
    ],
    invalid: ["secret", "mysql://u:secret@h", "postgres:secret@h", "postgres://u:secret%zz@h", "postgres://["]
  },
  DATABASE_MAX_CONNECTIONS: { valid: ["2", "1000"], invalid: ["1", "1001"] },
  PET_CACHE_SECONDS: { valid: ["0", "3600"], invalid: ["3601", "-1", "1.5"] },
  REDIS_URL: {
    valid: [
      "redis://h",
      "rediss://u:p@h:1",
      "redis://h/15",
      "redis+sentinel://u:p@h,[::1]:1/pets/2?sentinel_username=a&sentinel_password=b",
      "rediss+cluster://h:1,h_2/"
    ],
    invalid: [
      "http://secret@h",
      "redis:secret",
      "redis://h/secret",
      "redis://h?a=secret",
      "redis://u:secret%zz@h",
      "redis://:secret@h,i",
      "redis+sentinel://:secret@h",
      "redis+cluster://:secret@h/1"
    ]
  },
  REUSE_PORT: { valid: ["true", "false"], invalid: ["yes", "1"] },
  DATA_DIR: { valid: ["./a b"], invalid: [] },
  MANAGEMENT_HOST: { valid: ["127.0.0.1"], invalid: ["http://h"] },
  MANAGEMENT_PORT: { valid: ["9090"], invalid: ["1.5"] },
  MANAGEMENT_ALLOWED_HOSTS: { valid: ["a, b.internal", ","], invalid: ["a,http://petstore", "a:1", "-"] },
  ADMIN_TOKEN: { valid: ["x", " adm_! ", "x".repeat(4_096)], invalid: ["adm_ secret", "x".repeat(4_097), "ä"] },
  ADMIN_TOKENS: {
    valid: ["alice:0123456789abcdef", "a.b-c:read:0123456789:abcdef, d:0123456789abcdef"],
    invalid: ["secret-0123456789", "alice:short", ":0123456789abcdef", "a:0123456789abcdef,", "a b:0123456789abcdef"]
  },
  AUDIT_RETENTION_DAYS: { valid: ["1", "3650"], invalid: ["0", "3651"] },
  USAGE_RETENTION_DAYS: { valid: ["1", "30"], invalid: ["0", "31"] },
  TRUSTED_PROXIES: { valid: ["10.0.0.1, 10.0.0.0/8,2001:db8::/32"], invalid: ["localhost", "1.2.3.4,10.0.0.0/33"] },
  DRAIN_SECONDS: { valid: ["0", "5"], invalid: ["6", "0.5"] },
  KEEP_ALIVE_SECONDS: { valid: ["1", "3600"], invalid: ["0", "3601", "1.5"] },
  MAX_CONNECTIONS: { valid: ["1", "10000"], invalid: ["0", "many"] },
  CORS_ORIGINS: {
    valid: ["*", "https://shop.example, http://localhost:3000"],
    invalid: ["shop", "https://shop.example/", "https://a.example,ftp"]
  },
  LOG_LEVEL: { valid: ["trace", "none"], invalid: ["Info", "loud"] },
  LOG_FORMAT: { valid: ["json", "pretty"], invalid: ["text"] },
  BUILD_REVISION: { valid: ["unknown", "79d1fb3", "1.0.0-rc.1"], invalid: ["a b", "\"", "x".repeat(65)] },
  OTEL_EXPORTER_OTLP_ENDPOINT: { valid: ["http://h:4318", "https://h/otlp"], invalid: ["h:4318", "ftp://secret@h"] },
  OTEL_TRACES_SAMPLER: { valid: ["parentbased_always_on", "parentbased_traceidratio"], invalid: ["always_on"] },
  OTEL_TRACES_SAMPLER_ARG: { valid: ["0", "1", "0.01", ".5"], invalid: ["2", "1.1", "-1", "1e-2", "half"] }
}

describe("Settings", () => {
  it("have examples here", () => {
    assert.deepStrictEqual(allSettings.map(({ name }) => name).toSorted(), Object.keys(examples).toSorted())
  })

  for (const { config, form, name } of allSettings) {
    const { invalid = [], valid = [] } = examples[name] ?? {}

    it.effect.each(valid)(`accept ${name}=%j`, (text) => read(config, { [name]: text }))

    if (invalid.length > 0) {
      it.effect.each(invalid)(
        `reject ${name}=%j with the name and the form, and without a secret`,
        (text) =>
          Effect.gen(function*() {
            const error = yield* Effect.flip(read(config, { [name]: text }))
            const message = LogLines.describe(Cause.fail(error))
            assert.isTrue(message.startsWith(`${name}: expected ${form}`), message)
            assert.notInclude(message, "secret")
          })
      )
    }

    it.effect(`treat an empty ${name} as not set`, () =>
      Effect.gen(function*() {
        const [empty, absent] = yield* Effect.forEach([{ [name]: "" }, {}], (env) => read(Config.option(config), env))
        assert.deepStrictEqual(empty, absent)
      }))
  }

  it.effect("have values of their types", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* read(Settings.port.config, { PORT: " 80 " }), 80)
      assert.strictEqual(Redacted.value(yield* read(Settings.adminToken.config, { ADMIN_TOKEN: " adm_! " })), "adm_!")
      assert.deepStrictEqual(
        yield* read(Settings.managementAllowedHosts.config, { MANAGEMENT_ALLOWED_HOSTS: "a, b," }),
        ["a", "b"]
      )
      const networks = yield* read(Settings.trustedProxies.config, { TRUSTED_PROXIES: "10.0.0.1,10.0.0.0/8" })
      assert.deepStrictEqual(networks.map(IpNetwork.format), ["10.0.0.1/32", "10.0.0.0/8"])
    }))

  it.effect("name the invalid entry of a list", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(read(Settings.corsOrigins.config, { CORS_ORIGINS: "https://a.example, shop" }))
      assert.strictEqual(
        LogLines.describe(Cause.fail(error)),
        "CORS_ORIGINS: expected origins like https://shop.example, separated by commas, or *, not \"shop\""
      )
    }))

  it.effect("are all checked at once, and the error has one line per invalid setting", () =>
    Effect.gen(function*() {
      const { message } = yield* Effect.flip(check({ PORT: "http", LOG_LEVEL: "loud", REDIS_URL: "redis://h" }))
      assert.deepStrictEqual(message.split("\n"), [
        "PORT: expected a whole number from 0 to 65535",
        "LOG_LEVEL: expected trace, debug, info, warn, error, fatal or none"
      ])
      assert.isTrue(Exit.isSuccess(yield* Effect.exit(check({}))))
    }))

  it("are the table of docs/configuration.md", () => {
    const page = readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8")
    const rows = allSettings.map(({ byDefault, form, meaning, name }) =>
      `| \`${name}\` | ${form} | ${byDefault} | ${meaning} |`
    )
    assert.include(page, ["| variable | form | default | meaning |", "|---|---|---|---|", ...rows, ""].join("\n"))
  })
})

/** The default of a setting, if it is one text. */
const defaultOf = (byDefault: string): string => /^`([^`]*)`$/.exec(byDefault)?.[1] ?? ""

/** The lines of a comment. */
const comment = (text: string): ReadonlyArray<string> =>
  [...text.matchAll(/\S.{0,116}(?= |$)/g)].map(([line]) => `# ${line}`)

/** The text of `.env.example`. `npx vitest run test/config/Settings.test.ts -u` writes it. */
const example = [
  "# The settings of the service. Copy this file to .env, remove the # before the settings that you change, and start",
  "# the service with `node --env-file=.env src/main.ts`, or a container with `docker run --env-file .env`.",
  "# docs/configuration.md names OpenTelemetry's other variables. docs/database.md and docs/redis.md describe TLS.",
  ...allSettings.flatMap(({ byDefault, form, meaning, name }) => [
    "",
    ...comment(meaning),
    ...comment(`Form: ${form}. Default: ${byDefault}.`),
    `#${name}=${defaultOf(byDefault)}`
  ]),
  ""
].join("\n")

describe(".env.example", () => {
  it("has each setting with its meaning, form and default", async () => {
    await expect(example).toMatchFileSnapshot("../../.env.example")
  })

  it.effect("has valid defaults, which Node reads from the file", () => {
    const env = parseEnv(example.replaceAll(/^#(?=[A-Z])/gm, ""))
    assert.sameMembers(Object.keys(env), allSettings.map(({ name }) => name))
    assert.include(env, { PORT: "8080", DATABASE_URL: "" })
    return check(Object.fromEntries(Object.entries(env).map(([name, text = ""]) => [name, text])))
  })
})
