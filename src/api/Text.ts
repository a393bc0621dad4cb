import { Effect, type JsonSchema, Predicate, Schema, SchemaAST, SchemaIssue, SchemaTransformation } from "effect"

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

export const documented = <A>(
  isValue: (value: unknown) => value is A,
  expected: string,
  schema: JsonSchema.JsonSchema
) =>
  Schema.declare(isValue, { expected, toCodecJson: () => undefined, toCodecStringTree: () => undefined }).check(
    Schema.makeFilter(() => true, { toJsonSchema: () => schema })
  )

/** Rejects texts with U+0000, which PostgreSQL cannot store, or with lone surrogates, which UTF-8 cannot encode. */
export const isStorable = Schema.makeFilter((text: string) => text.isWellFormed() && !text.includes("\0"), {
  expected: "a string without U+0000 or lone surrogates"
})

const idempotencyKeyForm = /^(?:"[!#-~]{1,255}"|[!#-~]{1,255})$/

/** The `Idempotency-Key` header. Quotation marks are optional: `"a"` and `a` are the same key. */
export const idempotencyKey = (description: string, example: string) => {
  const expected = "one idempotency key of 1 to 255 visible ASCII characters, without spaces or quotation marks"
  const schema = { type: "string", pattern: idempotencyKeyForm.source, description, examples: [example] } as const
  const parse = (text: string) => idempotencyKeyForm.test(text) ? text.replaceAll(`"`, "") : undefined
  return documented(Predicate.isString, expected, schema).pipe(
    Schema.decodeTo(Schema.String, transformText(expected, parse, (key) => key))
  )
}

/** A schema of type `A` without validation, for responses whose body a client's codec validates. */
export const uncheckedOf = <A>(schema: Schema.Schema<A>) =>
  Schema.declare((_value: unknown): _value is A => true, {
    description: SchemaAST.resolveDescription(schema.ast) ?? "Success"
  })

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => issue._tag === "MissingKey" ? "required" : SchemaIssue.defaultLeafHook(issue)
})

/** Describes all invalid fields, such as `limit: expected an integer; name: required`. */
export const describeIssue = (issue: SchemaIssue.Issue, nameOf: (path: ReadonlyArray<string>) => string): string =>
  formatIssue(issue).issues
    .map(({ message, path = [] }) => {
      const name = nameOf(path.map((segment) => String(typeof segment === "object" ? segment.key : segment)))
      return `${name}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
    })
    .join("; ")
