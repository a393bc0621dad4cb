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
  expected: "a string without U+0000 or lone surrogates",
  // The pattern does not exclude lone surrogates: without the flag `u`, such a pattern would also reject emoji.
  toJsonSchema: () => ({ pattern: "^[^\\x00]*$" })
})

export const formatChoice = (words: ReadonlyArray<string>): string =>
  `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`

export const oneOf = <const Words extends ReadonlyArray<string>>(...words: Words) =>
  Schema.Literals(words).annotate({ message: `Expected one of ${formatChoice(words)}` })

/**
 * Makes the schema of a response field whose known values are `words`. Clients accept any string, because a newer
 * service may send new values. The OpenAPI document names only `words`.
 */
export const openTo = <Words extends string>(words: Schema.Schema<Words>) =>
  Schema.declare((value): value is Words | (string & {}) => typeof value === "string", {
    expected: "string",
    toCodecJson: () => undefined,
    toCodecStringTree: () => undefined,
    toCodecArbitrary: () => Schema.link<Words | (string & {})>()(Schema.String, SchemaTransformation.passthrough())
  }).check(Schema.makeFilter(() => true, {
    representation: { id: "petstore/openTo", payload: null, schemas: [words.ast] },
    toJsonSchema: ({ schemas: [schema] }) => ({ ...schema })
  }))

// Write quotation marks as `\x22`: some client generators copy the pattern into a Python string without escaping them.
const idempotencyKeyForm = /^(?:\x22[!#-~]{1,255}\x22|[!#-~]{1,255})$/

/** The `Idempotency-Key` header. Quotation marks are optional: `"a"` and `a` are the same key. */
export const idempotencyKey = (description: string, example: string) => {
  const expected =
    "one idempotency key of 1 to 255 visible ASCII characters other than quotation marks, optionally in quotation marks"
  const schema = { type: "string", pattern: idempotencyKeyForm.source, description, examples: [example] } as const
  const parse = (text: string) => idempotencyKeyForm.test(text) ? text.replaceAll(`"`, "") : undefined
  const key = Schema.String.check(Schema.isPattern(idempotencyKeyForm, { expected }))
  return documented(Predicate.isString, expected, schema).pipe(
    // Encoding checks `key`, so a client rejects an invalid idempotency key before it sends the request.
    Schema.decodeTo(key, transformText(expected, parse, (text) => text))
  )
}

/**
 * Makes a schema without checks for the value of a response: the schema of its body checks what clients receive
 * (`CollectionEndpoints.ts`), and the compiler checks what handlers return.
 */
export const uncheckedOf = <A>(schema: Schema.Schema<A>) =>
  Schema.declare((_value: unknown): _value is A => true, {
    description: SchemaAST.resolveDescription(schema.ast) ?? "Success"
  })
