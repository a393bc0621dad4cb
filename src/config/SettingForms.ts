/**
 * Helpers that declare settings, and the settings that the in-memory test service reads too. The client package
 * contains the test service, so this file must not import Node modules.
 */
import { Config, Effect, Result, Schema, SchemaIssue } from "effect"
import { IpInterface, IpNetwork } from "effect/net"
import { describeIssue } from "../api/DescribeIssue.ts"
import { formatChoice } from "../api/TextSchemas.ts"

/**
 * The form of a setting's value, in words and as a parser. The error is `Expected ${form}`, and then the text that
 * `parse` fails with.
 */
export interface Form<A> {
  readonly form: string
  readonly parse: (text: string) => Result.Result<A, string>
}

export interface Setting<A> {
  readonly name: string
  readonly config: Config.Config<A>
  readonly form: string
  /** The default, in Markdown, for docs/configuration.md and .env.example. */
  readonly defaultText: string
  /** The description, in Markdown, for docs/configuration.md and .env.example. */
  readonly meaning: string
}

/** Reads a setting. The error does not quote the value, which may be a secret, unless `parse` quotes a part of it. */
export const read = <A>(name: string, { form, parse }: Form<A>): Config.Config<A> =>
  Config.mapEffect(Config.String(name), (text) =>
    Effect.mapError(Effect.fromResult(parse(text)), (problem) => {
      const issue = new SchemaIssue.InvalidValue({ message: `Expected ${form}${problem}` })
      return new Config.ConfigError(new Schema.SchemaError(new SchemaIssue.Pointer([name], issue)))
    }))

export const describeError = (error: Config.ConfigError): string =>
  Schema.isSchemaError(error.cause) ? describeIssue(error.cause.issue, (path) => path.join("_")) : error.message

export const makeForm = <A>(form: string, parse: (text: string) => A | undefined): Form<A> => ({
  form,
  parse: (text) => Result.fromNullishOr(parse(text), () => "")
})

export const textForm = (form: string, isValid: (text: string) => boolean): Form<string> =>
  makeForm(form, (text) => isValid(text) ? text : undefined)

/**
 * The form of a URL. The given `parse` fails with what the URL must have, such as "a host": the error is then
 * `Expected ${form} with a host`. If it fails with an empty string, the error is `Expected ${form}`.
 */
export const urlForm = <A>(form: string, parse: (text: string) => Result.Result<A, string>): Form<A> => ({
  form,
  parse: (text) => Result.mapError(parse(text), (problem) => problem === "" ? "" : ` with ${problem}`)
})

export const wholeNumber = (min: number, max: number): Form<number> =>
  makeForm(`a whole number from ${min} to ${max}`, (text) => {
    const value = Number(text)
    return /^\s*\d+\s*$/.test(text) && min <= value && value <= max ? value : undefined
  })

export const oneOf = <const Word extends string>(...words: ReadonlyArray<Word>): Form<Word> =>
  makeForm(formatChoice(words), (text) => words.find((word) => word === text))

const entriesOf = (text: string) => text.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "")

export const list = <A>(form: string, parse: (entry: string) => A | undefined): Form<ReadonlyArray<A>> => {
  const parseEntry = (entry: string) => Result.fromNullishOr(parse(entry), () => `, not "${entry}"`)
  return { form, parse: (text) => Result.all(entriesOf(text).map(parseEntry)) }
}

export const optional = <A>(name: string, form: Form<A>, defaultText: string) => (meaning: string): Setting<A> => ({
  name,
  config: read(name, form),
  form: form.form,
  defaultText,
  meaning
})

export const withDefault =
  <A>(name: string, form: Form<A>, value: NoInfer<A>, defaultText = `\`${String(value)}\``) =>
  (meaning: string): Setting<A> => {
    const setting = optional(name, form, defaultText)(meaning)
    return { ...setting, config: Config.withDefault(setting.config, value) }
  }

export const proxies = list(
  "IP addresses and networks (CIDR), separated by commas",
  (entry) =>
    Result.getOrUndefined(Result.map(IpInterface.fromString(entry, { prefix: "optional" }), IpNetwork.fromInterface))
)

export const trustedProxies = withDefault("TRUSTED_PROXIES", proxies, [], "none")(
  "The proxies whose `X-Forwarded-For` the API port trusts. The header is read from right to left."
)

export const label = (maxLength: number) =>
  textForm(
    `1 to ${maxLength} letters, digits, dots, hyphens and underscores`,
    (text) => /^[\w.-]+$/.test(text) && text.length <= maxLength
  )

export const environment = optional("ENVIRONMENT", label(40), "none")(
  "The name of this installation, such as `production`, which the console, `/readyz` and the log show."
)

const origins = list(
  "origins like https://shop.example, separated by commas, or *",
  (entry) => entry === "*" || URL.parse(entry)?.origin === entry ? entry : undefined
)

export const corsOrigins = withDefault("CORS_ORIGINS", origins, [], "none")(
  "The origins whose pages may call the API from a browser. `*` allows all."
)
