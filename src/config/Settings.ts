/**
 * Settings with a checked form. An error names the setting and the expected form, but never the value, because the
 * value can contain a password.
 */
import { Config, Schema } from "effect"

/** Text that `isValid` accepts. The error message of other text is "Expected", then `expected`. */
const validText = (isValid: (value: string) => boolean, expected: string) =>
  Schema.String.check(Schema.makeFilter(isValid, { message: `Expected ${expected}` }))

/** The setting `name`, a whole number from `min` to `max`, both included. Fails with a `ConfigError`. */
export const wholeNumber = (name: string, min: number, max: number) => {
  const isValid = (value: string): boolean => /^\s*\d+\s*$/.test(value) && min <= Number(value) && Number(value) <= max
  return Config.map(Config.schema(validText(isValid, `a whole number from ${min} to ${max}`), name), Number)
}

const isDecodable = (text: string): boolean => {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** The setting `name`, a redacted URL whose normalized text matches `form`. */
const url = (name: string, form: RegExp, example: string) => {
  const isValid = (value: string): boolean => {
    const href = URL.parse(value)?.href ?? ""
    return form.test(href) && isDecodable(href)
  }
  return Config.schema(Schema.RedactedFromValue(validText(isValid, example)), name)
}

/** `DATABASE_URL`: the URL of a PostgreSQL server, version 15 or later. Fails with a `ConfigError`. */
export const databaseUrl = url("DATABASE_URL", /^postgres(?:ql)?:\/\//, "postgres://user:password@host/database")

/** `REDIS_URL`: the URL of a Redis 7 or Valkey server. Fails with a `ConfigError`. */
export const redisUrl = url(
  "REDIS_URL",
  /^rediss?:\/\/[^/?#]*(?:\/\d*)?(?:\?[^#]*)?$/,
  "redis://host:port or rediss://host:port"
)
