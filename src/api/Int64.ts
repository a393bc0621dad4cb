/**
 * Exact 64-bit integers: `bigint` in TypeScript, digits in URLs, numbers in JSON bodies.
 *
 * `JSON.parse` rounds integers beyond 2^53, so the codec {@link exactJson} parses the text of a body itself.
 */
import {
  Context,
  Effect,
  type JsonSchema,
  Predicate,
  Schema,
  SchemaAST,
  SchemaIssue,
  SchemaParser,
  SchemaTransformation
} from "effect"
import { HttpApiSchema } from "effect/http-api"
import { documented } from "./Text.ts"

const isInt64 = (value: unknown): value is bigint => typeof value === "bigint" && BigInt.asIntN(64, value) === value

const range = `a whole number from ${-(2n ** 63n)} to ${2n ** 63n - 1n}`

const nounOf = (value: unknown): string => {
  if (value === null) return "null"
  if (Array.isArray(value)) return "an array"
  if (typeof value === "number") return "a fraction"
  return typeof value === "object" ? "an object" : `a ${typeof value}`
}

/** Set by {@link exactJson}: JSON numbers instead of the strings of digits in Effect's own codecs. */
const AsNumbers = Context.Reference<boolean>("petstore/api/Int64/AsNumbers", { defaultValue: () => false })

const invalid = (value: unknown, expected: string) =>
  Effect.fail(new SchemaIssue.InvalidValue({ expected }, value, undefined))

const decodeDigits = (text: unknown): Effect.Effect<bigint, SchemaIssue.Issue> => {
  const value = typeof text === "string" && /^-?\d+$/.test(text) ? parseInteger(text) : undefined
  return isInt64(value) ? Effect.succeed(value) : invalid(text, range)
}

const decodeNumber = (number: unknown): Effect.Effect<bigint, SchemaIssue.Issue> => {
  const value = typeof number === "number" && Number.isInteger(number) ? BigInt(number) : number
  if (isInt64(value)) return Effect.succeed(value)
  // `JSON.parse` reads 1e400 as infinite.
  const isTooLarge = typeof value === "bigint" || value === Infinity || value === -Infinity
  return invalid(number, isTooLarge ? range : `${range}, not ${nounOf(value)}`)
}

const toJson = (schema: JsonSchema.JsonSchema) =>
  Schema.link<bigint>()(
    documented(Predicate.isUnknown, range, schema),
    SchemaTransformation.transformEffect<bigint, unknown>({
      decode: (value) =>
        Effect.flatMap(AsNumbers, (asNumbers) => asNumbers ? decodeNumber(value) : decodeDigits(value)),
      encode: (value) => Effect.map(AsNumbers, (asNumbers) => asNumbers ? toNumber(value) : String(value))
    })
  )

/** Uses `JSON.rawJSON`, which takes twice as long, only for integers that a double cannot hold. */
const toNumber = (value: bigint): unknown => {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : JSON.rawJSON(String(value))
}

const roundingWarning =
  "As a JSON number, JavaScript's JSON.parse, jq before 1.7 and generated clients with the type " +
  "`number` round it beyond 2^53."

/**
 * Makes the schema of an integer from -2^63 to 2^63-1 (SPEC §2: integer, int64), for OpenAPI with a description and an
 * example. It is digits in a path or query, a number in {@link exactJson}, and a string of digits in the JSON of
 * Effect's own codecs, which other HttpApis, RPC and queues use.
 */
export const int64 = (description?: string, example?: number) => {
  const annotations: Readonly<Record<string, unknown>> = {
    format: "int64",
    ...description !== undefined && { description: `${description} ${roundingWarning}` },
    ...example !== undefined && { examples: [example] }
  }
  return Schema.declare(isInt64, {
    ...annotations,
    expected: range,
    toCodecJson: () => toJson({ type: "string", pattern: "^-?\\d+$", ...annotations }),
    toCodecStringTree: () => toJson({ type: "integer", ...annotations })
  }).check(Schema.makeFilter(() => true, { toJsonSchema: () => ({ type: "integer" }) }))
}

/** An {@link int64} without a description. */
export const Int64 = int64()

/** Sign, integer part, fraction, exponent. Allows leading zeros, which digits in a URL can have. */
const jsonNumber = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/**
 * Parses an integer in any JSON notation, such as `1e3` or `10.0`, in time linear in the length of the text. Returns
 * `undefined` for other texts and beyond 19 digits; the result can still exceed an int64.
 */
export const parseInteger = (text: string): bigint | undefined => {
  const match = jsonNumber.exec(text)
  if (match === null) return undefined
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match
  const significant = (whole + fraction).replace(/^0+/, "")
  // Without the lookbehind, a long run of zeros inside the number takes quadratic time.
  const digits = significant.replace(/(?<!0)0+$/, "")
  if (digits === "") return 0n
  const zeros = significant.length - digits.length - fraction.length + Number(exponent)
  if (zeros < 0 || digits.length + zeros > 19) return undefined
  return BigInt(sign + digits + "0".repeat(zeros))
}

/** Matches any text with a number that a double may round: more than 15 digits, or a tiny exponent. */
const mayRound = /[\d.]{16}|e-\d{3}/i

/**
 * Parses JSON without losing precision. Integers that a double cannot hold become `bigint`; fractions that a double
 * would round to an integer become `NaN`. A reviver is four times slower, so only texts that may need it use one.
 */
const parse = (text: string): unknown =>
  mayRound.test(text)
    ? JSON.parse(text, (_key, field, { source = "" }) => {
      if (typeof field !== "number") return field
      const exact = parseInteger(source)
      if (exact !== undefined) return BigInt(field) === exact ? field : exact
      return Number.isInteger(field) && Math.abs(field) < 1e19 ? NaN : field
    })
    : JSON.parse(text)

/**
 * Makes the codec between a value of `schema` and a JSON body with exact integers. OpenAPI describes the body by
 * `schema`, with each `int64` as an integer. `encodeText` can replace the encoder by a faster one.
 */
export const exactJson = <S extends Schema.Codec<unknown, unknown>>(
  schema: S,
  encodeText?: (value: S["Type"]) => string
): Schema.decodeTo<Schema.declare<S["Type"]>, Schema.declare<string>> => {
  const codec = Schema.toCodecJson(schema)
  const decode = SchemaParser.decodeUnknownEffect(codec)
  const encode = SchemaParser.encodeUnknownEffect(codec)
  const type = SchemaAST.isArrays(schema.ast) ? "array" : "object"
  const jsonText = Schema.declare(Predicate.isString).check(Schema.makeFilter(() => true, {
    representation: { id: "petstore/exactJson", payload: null, schemas: [schema.ast] },
    toJsonSchema: ({ schemas }) => ({ type, allOf: schemas })
  }))
  const transformation = SchemaTransformation.transformEffect<S["Type"], string>({
    decode: (text, options) =>
      Effect.try({
        try: () => parse(text),
        catch: () => {
          const expected = text === "" ? "JSON, but the body is empty" : "valid JSON"
          return new SchemaIssue.InvalidValue({ expected }, text, options)
        }
      }).pipe(Effect.flatMap((value) => decode(value, options)), Effect.provideService(AsNumbers, true)),
    encode: encodeText !== undefined
      ? (value) => Effect.succeed(encodeText(value))
      : (value, options) => Effect.map(Effect.provideService(encode(value, options), AsNumbers, true), stringify)
  })
  // The transformation checks the value, so its declaration need not.
  const unchecked = Schema.declare((_value: unknown): _value is S["Type"] => true)
  return jsonText.pipe(
    Schema.decodeTo(unchecked, transformation),
    HttpApiSchema.asText({ contentType: "application/json" })
  )
}

const stringify = (json: unknown): string =>
  JSON.stringify(json, (_key, value: unknown) => {
    const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
    // All digits of the double: the shortest form, such as 76113668362221540, is another integer.
    return isRounded && Math.abs(value) < 1e19 ? JSON.rawJSON(String(BigInt(value))) : value
  })
