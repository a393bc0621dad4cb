/**
 * Declares what a setting is, the forms of settings, and the two settings of HTTP middleware. The service in memory has
 * this middleware and is in the client package, so this file imports nothing of Node.
 */
import { Config, Effect, Result, Schema, SchemaIssue } from "effect"
import { IpInterface, IpNetwork } from "effect/net"
import * as Issue from "../api/Issue.ts"

/** The form of a text, and its parser. A failure is the text that completes "Expected" and the form, or is empty. */
export interface Form<A> {
  readonly form: string
  readonly parse: (text: string) => Result.Result<A, string>
}

/** An environment variable. An empty variable counts as not set. */
export interface Setting<A> {
  readonly name: string
  /** Reads the setting. Fails with a `ConfigError` if the value is invalid, or if it is not set and has no default. */
  readonly config: Config.Config<A>
  /** The form of a valid value, in words. */
  readonly form: string
  /** The default and the meaning, in Markdown. */
  readonly byDefault: string
  readonly meaning: string
}

/** Reads the variable `name`. The error has the form and no value, because a value can contain a secret. */
export const read = <A>(name: string, { form, parse }: Form<A>): Config.Config<A> =>
  Config.mapEffect(Config.String(name), (text) =>
    Effect.mapError(Effect.fromResult(parse(text)), (problem) => {
      const issue = new SchemaIssue.InvalidValue({ message: `Expected ${form}${problem}` })
      return new Config.ConfigError(new Schema.SchemaError(new SchemaIssue.Pointer([name], issue)))
    }))

/** Describes the error of an invalid setting by its name and form. */
export const describeError = (error: Config.ConfigError): string =>
  Schema.isSchemaError(error.cause) ? Issue.describe(error.cause.issue, (path) => path.join("_")) : error.message

/** Makes a form of which `parse` returns the value, or `undefined` for an invalid text. */
export const makeForm = <A>(form: string, parse: (text: string) => A | undefined): Form<A> => ({
  form,
  parse: (text) => Result.fromNullishOr(parse(text), () => "")
})

export const textForm = (form: string, isValid: (text: string) => boolean): Form<string> =>
  makeForm(form, (text) => isValid(text) ? text : undefined)

/** A whole number from `min` to `max`, both included. */
export const wholeNumber = (min: number, max: number): Form<number> =>
  makeForm(`a whole number from ${min} to ${max}`, (text) => {
    const value = Number(text)
    return /^\s*\d+\s*$/.test(text) && min <= value && value <= max ? value : undefined
  })

export const oneOf = <const Word extends string>(...words: ReadonlyArray<Word>): Form<Word> =>
  makeForm(`${words.slice(0, -1).join(", ")} or ${words.at(-1)}`, (text) => words.find((word) => word === text))

const entriesOf = (text: string) => text.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "")

/** Entries separated by commas. The error names the first entry that `parse` rejects. */
export const list = <A>(form: string, parse: (entry: string) => A | undefined): Form<ReadonlyArray<A>> => {
  const parseEntry = (entry: string) => Result.fromNullishOr(parse(entry), () => `, not "${entry}"`)
  return { form, parse: (text) => Result.all(entriesOf(text).map(parseEntry)) }
}

/** Declares a setting without a default value. `byDefault` describes the behavior without it. */
export const optional = <A>(name: string, form: Form<A>, byDefault: string) => (meaning: string): Setting<A> => ({
  name,
  config: read(name, form),
  form: form.form,
  byDefault,
  meaning
})

/** Declares a setting with a default value, which `words` describe. */
export const withDefault =
  <A>(name: string, form: Form<A>, byDefault: NoInfer<A>, words = `\`${String(byDefault)}\``) =>
  (meaning: string): Setting<A> => {
    const setting = optional(name, form, words)(meaning)
    return { ...setting, config: Config.withDefault(setting.config, byDefault) }
  }

export const proxies = list(
  "IP addresses and networks (CIDR), separated by commas",
  (entry) =>
    Result.getOrUndefined(Result.map(IpInterface.fromString(entry, { prefix: "optional" }), IpNetwork.fromInterface))
)

export const trustedProxies = withDefault("TRUSTED_PROXIES", proxies, [], "none")(
  "The proxies whose `X-Forwarded-For` the API port trusts. It reads the header from the right."
)

const origins = list(
  "origins like https://shop.example, separated by commas, or *",
  (entry) => entry === "*" || URL.parse(entry)?.origin === entry ? entry : undefined
)

export const corsOrigins = withDefault("CORS_ORIGINS", origins, [], "none")(
  "The origins whose pages may call the API from a browser. `*` allows all."
)
