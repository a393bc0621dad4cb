/** Tests of the settings whose form is checked. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Config, ConfigProvider, Effect, Option, Redacted } from "effect"
import { databaseUrl, redisUrl, wholeNumber } from "../../src/config/Settings.ts"
import * as Logging from "../../src/observability/Logging.ts"

/** Reads a setting from `env` as the service reads it from its environment. */
const read = <A>(setting: Config.Config<A>, env: Readonly<Record<string, string>>) =>
  setting.parse(ConfigProvider.fromEnv({ env }))

const settings = [
  {
    name: "DATABASE_URL",
    setting: Config.map(databaseUrl, Redacted.value),
    form: "postgres://user:password@host/database",
    valid: ["postgres://a", "postgresql://u:p%40@h:1/d?host=/run", "POSTGRES:///d", "postgres://h\n"],
    invalid: ["secret", "mysql://u:secret@h", "postgres:secret@h", "postgres://u:secret%zz@h", "postgres://["]
  },
  {
    name: "REDIS_URL",
    setting: Config.map(redisUrl, Redacted.value),
    form: "redis://host:port or rediss://host:port",
    valid: ["redis://h", "rediss://u:p@h:1", "redis://h/15", "redis://h/?a=b"],
    invalid: ["http://secret@h", "redis:secret", "redis://h/secret", "redis://u:secret%zz@h"]
  },
  {
    name: "SECONDS",
    setting: Config.map(wholeNumber("SECONDS", 1, 50), String),
    form: "a whole number from 1 to 50",
    valid: ["1", "50"],
    invalid: ["0", "51", "-1", "1.5", "1e1", "0x9", "many", "NaN"]
  }
]

describe("Settings", () => {
  for (const { form, name, valid, setting, invalid } of settings) {
    it.effect.each(valid)(`returns a valid ${name} unchanged: %j`, (text) =>
      Effect.gen(function*() {
        assert.strictEqual(yield* read(setting, { [name]: text }), text)
      }))

    it.effect.each(invalid)(
      `rejects an invalid ${name} with its name and expected form but without its value: %s`,
      (text) =>
        Effect.gen(function*() {
          const error = yield* Effect.flip(read(setting, { [name]: text }))
          assert.strictEqual(Logging.describe(Cause.fail(error)), `${name}: expected ${form}`)
        })
    )

    it.effect(`treats an empty ${name} as not set`, () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* read(Config.option(setting), { [name]: "" }), Option.none())
      }))
  }
})
