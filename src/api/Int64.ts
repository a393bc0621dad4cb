/**
 * Declares exact 64-bit integers, which are `bigint` in TypeScript, decimal digits in URLs and numbers in JSON.
 *
 * `JSON.parse` rounds integers beyond 2^53. So a body with an `int64` is a text with the codec {@link exactJson}.
 */
import {
  Context,
  Effect,
  type JsonSchema,
  Predicate,
  Schema,
  SchemaAST,
  SchemaGetter,
  SchemaIssue,
  SchemaParser,
  SchemaTransformation
} from "effect"
import { HttpApiSchema } from "effect/http-api"
import { documented } from "./Text.ts"

const isInt64 = (value: unknown): value is bigint => typeof value === "bigint" && BigInt.asIntN(64, value) === value

const range = `a whole number from ${-(2n ** 63n)} to ${2n ** 63n - 1n}`

/** Returns the description of a JSON value that is no int64. */
const expectedInsteadOf = (value: unknown): string => {
  if (typeof value === "bigint" || (typeof value === "number" && Math.abs(value) >= 2 ** 63)) return range
  if (typeof value === "number") return `${range}, not a fraction`
  if (typeof value === "object" && value !== null) {
    return `${range}, not an ${Array.isArray(value) ? "array" : "object"}`
  }
  return `${range}, not ${value === null ? "null" : `a ${typeof value}`}`
}

/** Whether the JSON of an int64 is a number, as in {@link exactJson}, and not the digits of Effect's own codecs. */
const AsNumbers = Context.Reference<boolean>("petstore/api/Int64/AsNumbers", { defaultValue: () => false })

const invalid = (value: unknown, expected: string) =>
  Effect.fail(new SchemaIssue.InvalidValue({ expected }, value, undefined))

const decodeDigits = (text: unknown): Effect.Effect<bigint, SchemaIssue.Issue> => {
  const value = typeof text === "string" && /^-?\d+$/.test(text) ? parseInteger(text) : undefined
  return isInt64(value) ? Effect.succeed(value) : invalid(text, range)
}

const decodeNumber = (number: unknown): Effect.Effect<bigint, SchemaIssue.Issue> => {
  const value = typeof number === "number" && Number.isInteger(number) ? BigInt(number) : number
  return isInt64(value) ? Effect.succeed(value) : invalid(number, expectedInsteadOf(number))
}

/** Makes the link to JSON: digits, or within `exactJson` a number that `JSON.stringify` writes exactly. */
const toJson = (schema: JsonSchema.JsonSchema) =>
  Schema.link<bigint>()(
    documented(Predicate.isUnknown, range, schema),
    SchemaTransformation.transformEffect<bigint, unknown>({
      decode: (value) =>
        Effect.flatMap(AsNumbers, (asNumbers) => asNumbers ? decodeNumber(value) : decodeDigits(value)),
      encode: (value) => Effect.map(AsNumbers, (asNumbers) => asNumbers ? toNumber(value) : String(value))
    })
  )

/** `JSON.rawJSON` takes twice the time of a number. */
const toNumber = (value: bigint): unknown => {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : JSON.rawJSON(String(value))
}

const roundingWarning =
  "As a JSON number, JavaScript's JSON.parse, jq before 1.7 and generated clients with the type " +
  "`number` round it beyond 2^53."

/**
 * Makes the schema of an integer from -2^63 to 2^63-1 (SPEC §2: integer, int64), with its description and an example.
 *
 * In a path or a query it is decimal digits, and in an {@link exactJson} a number. In the JSON of Effect's own codecs
 * (`Schema.toCodecJson`), which another HttpApi, Effect RPC and queues use, it is a string of digits.
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

/** An `int64` without a description. */
export const Int64 = int64()

/** Matches JSON numbers: sign, integer part, fraction and exponent. Unlike JSON, it allows leading zeros. */
const jsonNumber = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/**
 * Parses the integer that a JSON number denotes in any notation: `1e3` and `10.0` are integers.
 *
 * Returns `undefined` for other texts, and for more than 19 digits. The result can still be out of the range of an
 * int64. The time is linear in the length of the text, for any exponent.
 */
export const parseInteger = (text: string): bigint | undefined => {
  const match = jsonNumber.exec(text)
  if (match === null) return undefined
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match
  const significant = (whole + fraction).replace(/^0+/, "")
  // The lookbehind lets a match begin only at the start of a run of zeros. Without it, a long run takes quadratic time.
  const digits = significant.replace(/(?<!0)0+$/, "")
  if (digits === "") return 0n
  const zeros = significant.length - digits.length - fraction.length + Number(exponent)
  if (zeros < 0 || digits.length + zeros > 19) return undefined
  return BigInt(sign + digits + "0".repeat(zeros))
}

/** Matches a text that may have a number of more than 15 digits, or one that becomes 0. */
const mayRound = /[\d.]{16}|e-\d{3}/i

/**
 * Parses a JSON text, with the integers that a double cannot hold as `bigint`, and the fractions that it would round to
 * an integer as `NaN`. A reviver takes four times the time, and most texts need none.
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

const isString = (value: unknown): value is string => typeof value === "string"

/**
 * Makes the codec between a JSON text and a value of `schema`, which keeps every integer exact in both directions.
 *
 * `encodeText` can replace the encoding of the schema by a faster one. The OpenAPI document of any HttpApi describes
 * the body by `schema`, with an `int64` as an integer. The codec declares its type without a check, so that a value is
 * checked only once, by the transformation.
 */
export const exactJson = <S extends Schema.Codec<unknown, unknown>>(
  schema: S,
  encodeText?: (value: S["Type"]) => string
): Schema.decodeTo<Schema.declare<S["Type"]>, Schema.declare<string>> => {
  const codec = Schema.toCodecJson(schema)
  const decode = SchemaParser.decodeUnknownEffect(codec)
  const encode = SchemaParser.encodeUnknownEffect(codec)
  const type = SchemaAST.isArrays(schema.ast) ? "array" : "object"
  const jsonText = Schema.declare(isString).check(Schema.makeFilter(() => true, {
    representation: { id: "petstore/exactJson", payload: null, schemas: [schema.ast] },
    toJsonSchema: ({ schemas }) => ({ type, allOf: schemas })
  }))
  return jsonText.pipe(
    Schema.decodeTo(
      Schema.declare((_value: unknown): _value is S["Type"] => true),
      new SchemaTransformation.Transformation(
        SchemaGetter.transformEffect((text: string, options) =>
          Effect.try({
            try: () => parse(text),
            catch: () =>
              new SchemaIssue.InvalidValue(
                { expected: text === "" ? "JSON, not an empty body" : "valid JSON" },
                text,
                options
              )
          }).pipe(
            Effect.flatMap((value) => decode(value, options)),
            Effect.provideService(AsNumbers, true)
          )
        ),
        encodeText === undefined
          ? SchemaGetter.transformEffect((value: S["Type"], options) =>
            Effect.map(Effect.provideService(encode(value, options), AsNumbers, true), (json) => JSON.stringify(json))
          )
          : SchemaGetter.transform(encodeText)
      )
    ),
    HttpApiSchema.asText({ contentType: "application/json" })
  )
}
