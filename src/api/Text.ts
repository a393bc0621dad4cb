/** Texts: checks of those that the service stores, idempotency keys, and values that are texts in a URL or a header. */
import { Effect, type JsonSchema, Schema, SchemaAST, SchemaGetter, SchemaIssue, SchemaTransformation } from "effect"

/** Makes the transformation between a text and a value. `parse` returns `undefined` for an invalid text. */
export const transformText = <A>(
  expected: string,
  parse: (text: string) => A | undefined,
  format: (value: A) => string
): SchemaTransformation.Transformation<A, string> =>
  SchemaTransformation.transformEffect<A, string>({
    decode: (text, options) => {
      const value = parse(text)
      return value === undefined
        ? Effect.fail(new SchemaIssue.InvalidValue({ expected }, text, options))
        : Effect.succeed(value)
    },
    encode: (value) => Effect.succeed(format(value))
  })

/** Makes the schema of a text or a number that OpenAPI documents describe by `schema`. The codecs keep it as it is. */
export const documented = <A>(
  isValue: (value: unknown) => value is A,
  expected: string,
  schema: JsonSchema.JsonSchema
) =>
  Schema.declare(isValue, { expected, toCodecJson: () => undefined, toCodecStringTree: () => undefined }).check(
    Schema.makeFilter(() => true, { toJsonSchema: () => schema })
  )

/** Checks that PostgreSQL can store a text: it has no U+0000, and no lone surrogates, which UTF-8 cannot encode. */
export const isStorable = Schema.makeFilter((text: string) => text.isWellFormed() && !text.includes("\0"), {
  expected: "a string without U+0000 and lone surrogates"
})

/** Checks that a text has at most `max` characters: Unicode code points, as in `maxLength` of JSON Schema. */
export const hasAtMost = (max: number) =>
  Schema.makeFilter((text: string) => text.length <= max || Array.from(text.slice(0, 2 * max + 1)).length <= max, {
    expected: `a string of at most ${max.toLocaleString("en")} characters`,
    toJsonSchema: () => ({ maxLength: max })
  })

const idempotencyKeyForm = /^(?:"[!#-~]{1,255}"|[!#-~]{1,255})$/

/** Makes the schema of an `Idempotency-Key` header. Quotation marks are optional: `"a"` and `a` are the same key. */
export const idempotencyKey = (description: string, example: string) =>
  Schema.String.annotate({ description, pattern: idempotencyKeyForm.source, examples: [example] }).check(
    Schema.isPattern(idempotencyKeyForm, {
      expected: "one key of 1 to 255 visible ASCII characters, without spaces and quotation marks"
    })
  ).pipe(
    Schema.decodeTo(Schema.String, {
      decode: SchemaGetter.transform((text: string) => text.replaceAll(`"`, "")),
      encode: SchemaGetter.passthrough()
    })
  )

/** Makes a schema of the same type that accepts every value: the codec of the body checks the parts of a response. */
export const uncheckedOf = <A>(schema: Schema.Schema<A>) =>
  Schema.declare((_value: unknown): _value is A => true, {
    description: SchemaAST.resolveDescription(schema.ast) ?? "Success"
  })
