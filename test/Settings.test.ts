import { assert, describe, it } from "@effect/vitest"
import { Cause, Config, ConfigProvider, Effect, Option, Redacted } from "effect"
import * as Logging from "../src/Logging.ts"
import { databaseUrl, redisUrl, wholeNumber } from "../src/Settings.ts"

/** What the environment says, as the service reads it. */
const read = <A>(setting: Config.Config<A>, env: Readonly<Record<string, string>>) =>
  setting.parse(ConfigProvider.fromEnv({ env }))

describe("URLs of servers", () => {
  for (const text of ["postgres://a", "postgresql://u:p%40@h:1/d?host=/run", "POSTGRES:///d", "postgres://h\n"]) {
    it.effect(`are taken as they are: ${JSON.stringify(text)}`, () =>
      Effect.gen(function*() {
        assert.strictEqual(Redacted.value(yield* read(databaseUrl, { DATABASE_URL: text })), text)
      }))
  }

  for (const text of ["redis://h", "rediss://u:p@h:1", "redis://h/15", "redis://h/?a=b"]) {
    it.effect(`are taken as they are: ${text}`, () =>
      Effect.gen(function*() {
        assert.strictEqual(Redacted.value(yield* read(redisUrl, { REDIS_URL: text })), text)
      }))
  }

  for (
    const text of ["secret", "mysql://u:secret@h", "postgres:secret@h", "postgres://u:secret%zz@h", "postgres://["]
  ) {
    it.effect(`are refused by name and form alone: ${text}`, () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(read(databaseUrl, { DATABASE_URL: text }))
        assert.strictEqual(
          Logging.describe(Cause.fail(error)),
          "DATABASE_URL: expected postgres://user:password@host/database"
        )
      }))
  }

  for (const text of ["http://secret@h", "redis:secret", "redis://h/secret", "redis://u:secret%zz@h"]) {
    it.effect(`are refused by name and form alone: ${text}`, () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(read(redisUrl, { REDIS_URL: text }))
        assert.strictEqual(
          Logging.describe(Cause.fail(error)),
          "REDIS_URL: expected redis://host:port or rediss://host:port"
        )
      }))
  }

  it.effect("are as none where they are empty", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* read(Config.option(databaseUrl), { DATABASE_URL: "" }), Option.none())
    }))
})

describe("Whole numbers", () => {
  const seconds = wholeNumber("SECONDS", 1, 50)

  for (const [text, number] of [["1", 1], ["50", 50], ["007\n", 7]] as const) {
    it.effect(`are read: ${JSON.stringify(text)}`, () =>
      Effect.gen(function*() {
        assert.strictEqual(yield* read(seconds, { SECONDS: text }), number)
      }))
  }

  for (const text of ["0", "51", "-1", "1.5", "1e1", "0x9", "many", "NaN"]) {
    it.effect(`are refused by name and form: ${text}`, () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(read(seconds, { SECONDS: text }))
        assert.strictEqual(Logging.describe(Cause.fail(error)), "SECONDS: expected a whole number from 1 to 50")
      }))
  }
})
