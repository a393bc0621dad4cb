/** Declares what a setting is, and the kinds of settings: text, numbers, lists, URLs and words. */
import { Config, Option, Result, Schema } from "effect"
import type { Redacted } from "effect"
import * as Issue from "../api/Issue.ts"

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
export interface Form {
  readonly form: string
  readonly isValid: (text: string) => boolean
}

/** The documentation of a setting, and its default. */
interface Words<Default> {
  readonly byDefault: Default
  readonly meaning: string
}

export const validText = ({ form, isValid }: Form) =>
  Schema.String.check(Schema.makeFilter(isValid, { message: `Expected ${form}` }))

const quoted = (text: string | number): string => `\`${text}\``

export const any: Form = { form: "text", isValid: () => true }

export const text = (name: string, form: Form, { byDefault, meaning }: Words<string>): Setting<string> => ({
  name,
  config: Config.withDefault(Config.schema(validText(form), name), byDefault),
  form: form.form,
  byDefault: quoted(byDefault),
  meaning
})

/** A setting whose value can contain a secret. `words.byDefault` describes the behavior without it. */
export const secret = (name: string, form: Form, words: Words<string>): Setting<Redacted.Redacted> => ({
  name,
  config: Config.schema(Schema.RedactedFromValue(validText(form)), name),
  form: form.form,
  ...words
})

/** A URL with parameters. `parse` fails with the words that complete "Expected … with", or with none. */
export const connection = <A>(
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
export const list = <A>(
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
export const oneOf = <const Word extends string>(name: string, words: ReadonlyArray<Word>) => {
  const form = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`
  return { name, form, config: Config.schema(Schema.Literals(words).annotate({ message: `Expected ${form}` }), name) }
}

/** Describes the error of an invalid setting by its name and form. */
export const describeError = (error: Config.ConfigError): string =>
  Schema.isSchemaError(error.cause) ? Issue.describe(error.cause.issue, (path) => path.join("_")) : error.message
