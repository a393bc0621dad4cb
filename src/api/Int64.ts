/**
 * Exact 64-bit integers, in TypeScript (`bigint`), in URLs and in JSON.
 *
 * JSON numbers carry any number of digits (RFC 8259 §6), but `JSON.parse` rounds those beyond 2^53. A body that holds
 * an `Int64` therefore travels as text with a codec of its own, {@link exactJson}.
 */
import { Effect, Schema, SchemaGetter, SchemaIssue, SchemaParser, SchemaTransformation } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { compileJsonWriter } from "./JsonWriter.ts"

declare global {
  /** ECMAScript's "JSON.parse source text access", which TypeScript's library does not describe yet. */
  interface JSON {
    parse(
      text: string,
      reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown
    ): unknown
    rawJSON(text: string): unknown
  }
}

const isInt64 = (value: unknown): value is bigint => typeof value === "bigint" && BigInt.asIntN(64, value) === value

const expected = "an int64 integer"

/** What OpenAPI says of an `Int64`, in a body as in a path or a query. */
const documentation = { type: "integer", format: "int64" }

/**
 * An integer from -2^63 to 2^63-1 (SPEC §2: integer, int64).
 *
 * In a path or query it is decimal digits; in JSON a number, for which the body must be a {@link exactJson}.
 */
export const Int64 = Schema.declare(isInt64, {
  ...documentation,
  expected,
  toCodecJson: () => undefined,
  toCodecStringTree: () =>
    Schema.link<bigint>()(
      Schema.String.annotate(documentation),
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
})

/** Integers that most ids are: no zero in front, and a double holds them. */
const shortInteger = /^-?[1-9]\d{0,14}$/

const number = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/**
 * The integer that a JSON number denotes, however it is written (`1e3` and `10.0` are integers), or `undefined` if it
 * is none or has more digits than an int64. Takes time linear in the text, whatever its exponent.
 */
export const parseInteger = (text: string): bigint | undefined => {
  if (shortInteger.test(text)) return BigInt(Number(text))
  const match = number.exec(text)
  if (match === null) return undefined
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match
  const significant = (whole + fraction).replace(/^0+/, "")
  // A match may begin only where a run of zeros does: tried from each zero, a long run takes the square of its length.
  const digits = significant.replace(/(?<!0)0+$/, "")
  if (digits === "") return 0n
  const zeros = significant.length - digits.length - fraction.length + Number(exponent)
  if (zeros < 0 || digits.length + zeros > 19) return undefined
  return BigInt(sign + digits + "0".repeat(zeros))
}

/** A text whose numbers are all integers that a double holds: at most 15 digits, no fraction, no exponent. */
const hasInexactNumber = /\d{16}|\d[.eE]/

/** Short ones, which are most, in a tenth of the time. */
const integerOf = (value: number, source: string): bigint | number =>
  /^-?\d{1,15}$/.test(source) ? BigInt(value) : parseInteger(source) ?? value

/**
 * Parses a JSON text with its integers as `bigint`.
 *
 * `JSON.parse` hands the source of each number to a reviver, which takes five times as long as to parse without one. A
 * text whose numbers a double holds needs none. Digits in a string may look like a number: the reviver is only slower.
 */
const parse = (text: string): unknown =>
  hasInexactNumber.test(text)
    ? JSON.parse(
      text,
      (_key, field, { source }) => typeof field === "number" && source !== undefined ? integerOf(field, source) : field
    )
    : toBigInts(JSON.parse(text))

const toBigInts = (value: unknown): unknown => {
  if (typeof value === "number") return BigInt(value)
  if (Array.isArray(value)) return value.map(toBigInts)
  return isRecord(value) ? mapFields(value, toBigInts) : value
}

/** Serializes JSON with `bigint`s as numbers: without a replacer, at a fifth of the cost, where a double holds each. */
const stringify = (value: unknown): string => {
  const plain = toNumbers(value)
  return plain === inexact
    ? JSON.stringify(value, (_key, field: unknown) => typeof field === "bigint" ? JSON.rawJSON(String(field)) : field)
    : JSON.stringify(plain)
}

/** Stands for a value that holds a `bigint` beyond 2^53. */
const inexact = Symbol("inexact")

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

/** A copy that keeps the order of the fields. `__proto__` is a field like any other (`JSON.parse` makes it one). */
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
 * The body `schema` as JSON text in which every integer is exact, in both directions.
 *
 * `name` is the schema's in the OpenAPI document, which describes the body by it. The type of the codec is opaque: the
 * transformation checks it, once.
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
