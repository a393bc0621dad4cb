/**
 * Declares exact 64-bit integers, which are `bigint` in TypeScript, decimal digits in URLs and numbers in JSON.
 *
 * `JSON.parse` rounds integers beyond 2^53. So a body with an `int64` is a text with the codec {@link exactJson}.
 */
import {
  Effect,
  Predicate,
  Schema,
  SchemaAST,
  SchemaGetter,
  SchemaIssue,
  SchemaParser,
  SchemaTransformation
} from "effect"
import { HttpApiSchema } from "effect/http-api"
import { transformText } from "./Text.ts"

const isInt64 = (value: unknown): value is bigint => typeof value === "bigint" && BigInt.asIntN(64, value) === value

const expected = "an int64 integer"

/** Makes the link to decimal digits, in URLs and in the JSON of Effect's own codecs. */
const toDigits = (annotations: Readonly<Record<string, unknown>>) =>
  Schema.link<bigint>()(
    Schema.String.annotate(annotations),
    transformText(expected, (text) => /^-?\d+$/.test(text) ? parseInteger(text) : undefined, String)
  )

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
    expected,
    toCodecJson: () => toDigits({ ...annotations, pattern: "^-?\\d+$" }),
    // The OpenAPI document of this service has parameters as integers.
    toCodecStringTree: () => toDigits({ ...annotations, type: "integer" })
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

/** Matches a text that may have a number which is no integer of at most 15 digits, written without an exponent. */
const hasOtherNumbers = /\d(?:[.eE]|\d{15})/

/** Parses a JSON text with its integers as `bigint`. A reviver takes four times the time, and most texts need none. */
const parse = (text: string): unknown =>
  hasOtherNumbers.test(text)
    ? JSON.parse(text, (_key, field, { source = "" }) =>
      typeof field === "number" ? parseInteger(source) ?? field : field)
    : toBigInts(JSON.parse(text))

const toBigInts = (value: unknown): unknown => {
  if (typeof value === "number") return BigInt(value)
  if (Array.isArray(value)) return value.map(toBigInts)
  if (!Predicate.isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, toBigInts(field)]))
}

/** Serializes a value as JSON, with each `bigint` as a number. `JSON.rawJSON` takes twice the time of a number. */
const stringify = (value: unknown): string =>
  JSON.stringify(value, (_key, field: unknown) => {
    if (typeof field !== "bigint") return field
    const number = Number(field)
    return Number.isSafeInteger(number) ? number : JSON.rawJSON(String(field))
  })

const isString = (value: unknown): value is string => typeof value === "string"

/**
 * Makes the codec between a JSON text and a value of `schema`, which keeps every integer exact in both directions.
 *
 * The OpenAPI document of any HttpApi describes the body by the type of `schema`, with integers as `int64` numbers. The
 * codec declares its type without a check, so that a value is checked only once, by the transformation.
 */
export const exactJson = <S extends Schema.Codec<unknown, unknown>>(
  schema: S,
  encodeText?: (value: S["Type"]) => string
): Schema.decodeTo<Schema.declare<S["Type"]>, Schema.declare<string>> => {
  const decode = SchemaParser.decodeUnknownEffect(schema)
  const encode = SchemaParser.encodeUnknownEffect(schema)
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
          Effect.flatMap(
            Effect.try({
              try: () => parse(text),
              catch: () => new SchemaIssue.InvalidValue({ expected: "valid JSON" }, text, options)
            }),
            (value) => decode(value, options)
          )
        ),
        encodeText === undefined
          ? SchemaGetter.transformEffect((value: S["Type"], options) => Effect.map(encode(value, options), stringify))
          : SchemaGetter.transform(encodeText)
      )
    ),
    HttpApiSchema.asText({ contentType: "application/json" })
  )
}
