/** Exact 64-bit integers in JSON. `JSON.parse` alone can round integers beyond 2^53, so use {@link exactJson}. */
import { Effect, Predicate, Schema, SchemaIssue, SchemaParser, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { hasOnlyIgnorableNames } from "./DescribeIssue.ts"
import { documented, transformText } from "./TextSchemas.ts"

export const isInt64 = (value: unknown): value is bigint =>
  typeof value === "bigint" && BigInt.asIntN(64, value) === value

const bounds = { minimum: -(2n ** 63n), maximum: 2n ** 63n - 1n }
const range = `a whole number from ${bounds.minimum} to ${bounds.maximum}`

const expectationFor = (value: unknown): string => {
  if (typeof value === "bigint") return range
  if (typeof value === "number") return Math.abs(value) >= 2 ** 63 ? range : `${range}, not a fraction`
  if (value === null) return `${range}, not null`
  if (Array.isArray(value)) return `${range}, not an array`
  return `${range}, not ${typeof value === "object" ? "an object" : `a ${typeof value}`}`
}

const fromJson = (value: unknown) => typeof value === "number" && Number.isInteger(value) ? BigInt(value) : value

const fromDigits = (text: unknown) => typeof text === "string" && /^-?\d+$/.test(text) ? parseInteger(text) : undefined

const invalid = (expected: string, value: unknown) =>
  Effect.fail(new SchemaIssue.InvalidValue({ expected }, value, undefined))

/** In parsed JSON, an int64 is a number, or a `bigint` if a number would round it. */
const jsonInteger = SchemaTransformation.transformEffect<bigint, unknown>({
  decode: (value) => {
    const integer = fromJson(value)
    return isInt64(integer) ? Effect.succeed(integer) : invalid(expectationFor(value), value)
  },
  encode: (value) => Effect.succeed(value)
})

/** Converts an int64 to and from digits, for a JSON string or a URL. */
const linkToDigits = (schema: Readonly<Record<string, unknown>>) =>
  Schema.link<unknown>()(
    documented(Predicate.isUnknown, range, schema),
    SchemaTransformation.transformEffect<unknown, unknown>({
      decode: (text) => {
        const integer = fromDigits(text)
        return isInt64(integer) ? Effect.succeed(integer) : invalid(range, text)
      },
      encode: (value) => Effect.succeed(String(value))
    })
  )

const roundingWarning =
  "JavaScript's JSON.parse, jq before 1.7 and generated clients with the type `number` round it beyond 2^53."

/** The bounds as JSON numbers with all digits: a JavaScript number would round the maximum. */
const jsonBounds = () => ({
  minimum: JSON.rawJSON(String(bounds.minimum)),
  maximum: JSON.rawJSON(String(bounds.maximum))
})

const anyInt64 = Schema.BigInt.check(Schema.isBetweenBigInt(bounds))

/** A 64-bit integer. {@link exactJson} encodes it as a number, and other JSON codecs as a string of digits. */
export const int64 = (description?: string, example?: number) => {
  const annotations: Readonly<Record<string, unknown>> = {
    format: "int64",
    ...description !== undefined && { description: `${description} ${roundingWarning}` },
    ...example !== undefined && { examples: [example] }
  }
  const encoded = Schema.declare(Predicate.isUnknown, {
    expected: range,
    toCodecJson: () => linkToDigits({ type: "string", pattern: "^-?\\d+$", ...annotations }),
    // In a URL.
    toCodecStringTree: () => linkToDigits({ type: "integer", ...jsonBounds(), ...annotations })
  })
  const decoded = Schema.declare(isInt64, {
    ...annotations,
    expected: range,
    toCodecArbitrary: () => Schema.link<bigint>()(anyInt64, SchemaTransformation.passthrough())
  }).check(Schema.makeFilter(() => true, { toJsonSchema: () => ({ type: "integer", ...jsonBounds() }) }))
  return encoded.pipe(Schema.decodeTo(decoded, jsonInteger))
}

/** A 64-bit integer, as {@link int64} without a description. */
export const Int64 = int64()

/**
 * A 64-bit integer from decimal digits with an optional minus sign, such as a URL parameter or the value of a `bigint`
 * column in SQL.
 */
export const Int64FromString = Schema.String.pipe(
  Schema.decodeTo(Schema.toType(Int64), transformText(range, fromDigits, String))
)

const jsonNumber = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/** Parses an integer between -10^19 and 10^19, also written as `1e3` or `1.0`. Returns `undefined` for other texts. */
export const parseInteger = (text: string): bigint | undefined => {
  const match = jsonNumber.exec(text)
  if (match === null) return undefined
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match
  const significant = (whole + fraction).replace(/^0+/, "")
  // The lookbehind keeps the search linear: without it, a long run of zeros inside the number takes quadratic time.
  const digits = significant.replace(/(?<!0)0+$/, "")
  if (digits === "") return 0n
  const zeros = significant.length - digits.length - fraction.length + Number(exponent)
  if (zeros < 0 || digits.length + zeros > 19) return undefined
  return BigInt(sign + digits + "0".repeat(zeros))
}

/** Matches JSON text for which `JSON.parse` may return a wrong integer. Only such text needs a (slow) reviver. */
const mayRound = /[\d.]{16}|(?:^|[:,[\s])-?[\d.]+e[+\d]|e-\d{3}/i

/**
 * An integer of up to 19 digits that `JSON.parse` would round becomes a `bigint`. A longer integer can be rounded,
 * because it exceeds int64 anyway. A fraction that `JSON.parse` would round to an integer below 10^19 becomes `NaN`
 * (invalid).
 */
const parse = (text: string): unknown =>
  mayRound.test(text)
    ? JSON.parse(text, (_key, field, { source = "" }) => {
      // Fast path for safe integers that `JSON.parse` did not round.
      if (typeof field !== "number" || Number.isSafeInteger(field) && String(field) === source) return field
      const exact = parseInteger(source)
      if (exact !== undefined) return BigInt(field) === exact ? field : exact
      return Number.isInteger(field) && Math.abs(field) < 1e19 ? NaN : field
    })
    : JSON.parse(text)

interface ExactJsonOptions<A> {
  /** Replaces the encoder of the schema, if given. Must write the same JSON. */
  readonly encodeText?: (value: A) => string
  /** Whether to reject an unknown name that equals a known one apart from case, `_` and `-`. Others are ignored. */
  readonly rejectsNearMisses?: boolean
}

/** Makes a codec of JSON text with exact int64s. Apart from int64s, `schema` must encode to plain JSON values. */
export const exactJson = <S extends Schema.Codec<unknown, unknown>>(
  schema: S,
  { encodeText, rejectsNearMisses = false }: ExactJsonOptions<S["Type"]> = {}
): Schema.decodeTo<Schema.declare<S["Type"]>, Schema.declare<string>> => {
  const decodeNamed = SchemaParser.decodeUnknownEffect(schema)
  const decode: typeof decodeNamed = (value, options) =>
    rejectsNearMisses
      ? Effect.catchEager(decodeNamed(value, { ...options, onExcessProperty: "error" }), (issue) =>
        hasOnlyIgnorableNames(issue) ? decodeNamed(value, options) : Effect.fail(issue))
      : decodeNamed(value, options)
  const encode = SchemaParser.encodeUnknownEffect(schema)
  const type = schema.ast._tag === "Arrays" ? "array" : "object"
  const jsonText = Schema.declare(Predicate.isString).check(Schema.makeFilter(() => true, {
    representation: { id: "petstore/exactJson", payload: null, schemas: [Schema.toType(schema).ast] },
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
      }).pipe(Effect.flatMap((value) => decode(value, options))),
    encode: encodeText !== undefined
      ? (value) => Effect.succeed(encodeText(value))
      : (value, options) => Effect.map(encode(value, options), stringify)
  })
  const unchecked = Schema.declare((_value: unknown): _value is S["Type"] => true)
  return jsonText.pipe(
    Schema.decodeTo(unchecked, transformation),
    HttpApiSchema.asText({ contentType: "application/json" })
  )
}

const stringify = (json: unknown): string =>
  JSON.stringify(json, (_key, value: unknown) => typeof value === "bigint" ? JSON.rawJSON(String(value)) : value)
