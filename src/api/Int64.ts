/**
 * Declares exact 64-bit integers, which are `bigint` in TypeScript, decimal digits in URLs and numbers in JSON.
 *
 * JSON numbers can have any number of digits (RFC 8259 §6), but `JSON.parse` rounds integers beyond 2^53. A body that
 * contains an `int64` is therefore declared as text, with {@link exactJson} as its codec.
 */
import { Effect, Schema, SchemaGetter, SchemaIssue, SchemaParser, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { compileJsonWriter } from "./JsonWriter.ts"

const isInt64 = (value: unknown): value is bigint => typeof value === "bigint" && BigInt.asIntN(64, value) === value

const expected = "an int64 integer"

/** The OpenAPI schema of an `Int64`, the same in a body, a path and a query. */
const documentation = { type: "integer", format: "int64" }

/** Makes the link to the string of decimal digits in URLs and in the JSON of Effect's own codecs. */
const toDigits = (annotations: Readonly<Record<string, unknown>>) =>
  Schema.link<bigint>()(
    Schema.String.annotate(annotations),
    SchemaTransformation.transformEffect({
      decode: (text, options) => {
        const value = /^-?\d+$/.test(text) ? parseInteger(text) : undefined
        return value === undefined
          ? Effect.fail(new SchemaIssue.InvalidValue({ expected }, text, options))
          : Effect.succeed(value)
      },
      encode: (value) => Effect.succeed(String(value))
    })
  )

/** Warns readers of the OpenAPI document: most JSON parsers represent a number as a double. */
const roundingWarning =
  "JavaScript's JSON.parse, jq before 1.7 and generated clients with the type `number` round it " +
  "beyond 2^53."

/**
 * Makes the schema of an integer from -2^63 to 2^63-1 (SPEC §2: integer, int64), with its description.
 *
 * In a path or a query it is decimal digits. In the JSON of this service it is a number, and the body must be an
 * {@link exactJson}. In the JSON of Effect's own codecs (`Schema.toCodecJson`) it is a string of digits, because
 * `JSON.parse` rounds large numbers. Bodies of another HttpApi, Effect RPC and queues use these codecs.
 */
export const int64 = (description?: string) => {
  const annotations = {
    ...documentation,
    ...description !== undefined && { description: `${description} ${roundingWarning}` }
  }
  return Schema.declare(isInt64, {
    ...annotations,
    expected,
    toCodecJson: () => toDigits(annotations),
    toCodecStringTree: () => toDigits(annotations)
  })
}

/** An `int64` without a description. */
export const Int64 = int64()

/** Matches integers of at most 15 digits without leading zeros, as most ids are. A double represents them exactly. */
const shortInteger = /^-?[1-9]\d{0,14}$/

/** Matches JSON numbers: sign, integer part, fraction and exponent. Unlike JSON, it allows leading zeros. */
const jsonNumber = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/**
 * Parses the integer that a JSON number denotes in any notation: `1e3` and `10.0` are integers.
 *
 * It returns `undefined` for a text that denotes no integer, and for more than 19 digits, the maximum of an int64. The
 * result can still be out of the range of an int64. The time is linear in the length of the text, for any exponent.
 */
export const parseInteger = (text: string): bigint | undefined => {
  if (shortInteger.test(text)) return BigInt(Number(text))
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

/**
 * Matches a JSON text that can contain a number other than an integer of at most 15 digits.
 *
 * A double represents integers of at most 15 digits exactly. A fraction, an exponent or 16 digits in a row match.
 */
const hasInexactNumber = /\d{16}|\d[.eE]/

/**
 * Returns the integer that `source` denotes, or the parsed `value` if it denotes none.
 *
 * Most integers have at most 15 digits; converting the parsed value takes a tenth of the time of `parseInteger`.
 */
const toExactInteger = (value: number, source: string): bigint | number =>
  /^-?\d{1,15}$/.test(source) ? BigInt(value) : parseInteger(source) ?? value

/**
 * Parses a JSON text with its integers as `bigint`.
 *
 * `JSON.parse` with a reviver, which gets the source of each number, takes five times as long as without one. A text
 * whose numbers a double represents exactly needs no reviver. A string can contain digits that look like an inexact
 * number; then the reviver only costs time.
 */
const parse = (text: string): unknown =>
  hasInexactNumber.test(text)
    ? JSON.parse(
      text,
      (_key, field, { source }) =>
        typeof field === "number" && source !== undefined ? toExactInteger(field, source) : field
    )
    : toBigInts(JSON.parse(text))

/** Copies a parsed JSON value with all its numbers, which must be integers, as `bigint`. */
const toBigInts = (value: unknown): unknown => {
  if (typeof value === "number") return BigInt(value)
  if (Array.isArray(value)) return value.map(toBigInts)
  return isRecord(value) ? mapFields(value, toBigInts) : value
}

/**
 * Serializes a value as JSON, with each `bigint` as a number.
 *
 * If a double represents every `bigint` exactly, serialization needs no replacer and takes a fifth of the time.
 */
const stringify = (value: unknown): string => {
  const numbers = toNumbers(value)
  return numbers === inexact
    ? JSON.stringify(value, (_key, field: unknown) => typeof field === "bigint" ? JSON.rawJSON(String(field)) : field)
    : JSON.stringify(numbers)
}

/** The result of `toNumbers` for a value that contains a `bigint` beyond 2^53. */
const inexact = Symbol("inexact")

/** Copies a value with each `bigint` as a number. Returns `inexact` if a double cannot represent one of them. */
const toNumbers = (value: unknown): unknown => {
  if (typeof value === "bigint") {
    const double = Number(value)
    return Number.isSafeInteger(double) ? double : inexact
  }
  if (Array.isArray(value)) {
    const items = value.map(toNumbers)
    return items.includes(inexact) ? inexact : items
  }
  if (!isRecord(value)) return value
  const fields = mapFields(value, toNumbers)
  for (const name in fields) if (fields[name] === inexact) return inexact
  return fields
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null

/**
 * Copies a record with the results of `map`, in the order of its fields.
 *
 * `__proto__` is an ordinary field, as in the results of `JSON.parse`; an assignment would set the prototype instead.
 */
const mapFields = (
  record: Readonly<Record<string, unknown>>,
  map: (value: unknown) => unknown
): Readonly<Record<string, unknown>> => {
  const copy: Record<string, unknown> = {}
  for (const name of Object.keys(record)) {
    if (name === "__proto__") Object.defineProperty(copy, name, { value: map(record[name]), enumerable: true })
    else copy[name] = map(record[name])
  }
  return copy
}

/**
 * Makes the codec between a JSON text and a value of `schema`, which keeps every integer exact in both directions.
 *
 * `name` is the name of the schema in the OpenAPI document, which describes the body by a reference to it. The codec
 * declares its type without a check, so that a value is checked only once, by the transformation.
 */
export const exactJson = <S extends Schema.Codec<unknown, unknown>>(
  name: string,
  schema: S
): Schema.decodeTo<Schema.declare<S["Type"]>, Schema.String> => {
  const decode = SchemaParser.decodeUnknownEffect(schema)
  const encode = SchemaParser.encodeUnknownEffect(schema)
  const write = compileJsonWriter(schema.ast)
  return Schema.String.annotate({
    contentMediaType: "application/json",
    contentSchema: { $ref: `#/components/schemas/${name}` }
  }).pipe(
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
        SchemaGetter.transformEffect((value: S["Type"], options) => {
          const text = write?.(value)
          return text === undefined ? Effect.map(encode(value, options), stringify) : Effect.succeed(text)
        })
      )
    ),
    HttpApiSchema.asText({ contentType: "application/json" })
  )
}
