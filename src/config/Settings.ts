/** Settings of a form, which is said of one that is wrong; not what was given, which may have a password in it. */
import { Config, Schema } from "effect"

/** Text of a form. */
const text = (isRight: (given: string) => boolean, expected: string) =>
  Schema.String.check(Schema.makeFilter(isRight, { message: `Expected ${expected}` }))

/** The setting `name`, a whole number from `least` to `most`. */
export const wholeNumber = (name: string, least: number, most: number) => {
  const isRight = (given: string): boolean =>
    /^\s*\d+\s*$/.test(given) && least <= Number(given) && Number(given) <= most
  return Config.map(Config.schema(text(isRight, `a whole number from ${least} to ${most}`), name), Number)
}

const isDecodable = (given: string): boolean => {
  try {
    decodeURIComponent(given)
    return true
  } catch {
    return false
  }
}

/** The setting `name`, a URL. */
const url = (name: string, form: RegExp, example: string) => {
  const isRight = (given: string): boolean => {
    const href = URL.parse(given)?.href ?? ""
    return form.test(href) && isDecodable(href)
  }
  return Config.schema(Schema.RedactedFromValue(text(isRight, example)), name)
}

/** `DATABASE_URL`: a PostgreSQL, 15 or later. */
export const databaseUrl = url("DATABASE_URL", /^postgres(?:ql)?:\/\//, "postgres://user:password@host/database")

/** `REDIS_URL`: a Redis 7 or Valkey. */
export const redisUrl = url(
  "REDIS_URL",
  /^rediss?:\/\/[^/?#]*(?:\/\d*)?(?:\?[^#]*)?$/,
  "redis://host:port or rediss://host:port"
)
