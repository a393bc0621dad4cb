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

export const formatChoice = (words: ReadonlyArray<string>): string =>
  `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`

export const oneOf = <const Words extends ReadonlyArray<string>>(...words: Words) =>
  Schema.Literals(words).annotate({ message: `Expected one of ${formatChoice(words)}` })

/** In responses: clients also accept other texts, which a newer service may send. The document names only `words`. */
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

const idempotencyKeyForm = /^(?:"[!#-~]{1,255}"|[!#-~]{1,255})$/

/** The `Idempotency-Key` header. Quotation marks are optional: `"a"` and `a` are the same key. */
export const idempotencyKey = (description: string, example: string) => {
  const expected = "one idempotency key of 1 to 255 visible ASCII characters, without spaces or quotation marks"
  const schema = { type: "string", pattern: idempotencyKeyForm.source, description, examples: [example] } as const
  const parse = (text: string) => idempotencyKeyForm.test(text) ? text.replaceAll(`"`, "") : undefined
  const key = Schema.String.check(Schema.isPattern(idempotencyKeyForm, { expected }))
  return documented(Predicate.isString, expected, schema).pipe(
    // The pattern of the key rejects an invalid one in the client, before it is sent.
    Schema.decodeTo(key, transformText(expected, parse, (text) => text))
  )
}

/** A response schema without checks: clients already decode the body's schema, and the compiler checks handlers. */
export const uncheckedOf = <A>(schema: Schema.Schema<A>) =>
  Schema.declare((_value: unknown): _value is A => true, {
    description: SchemaAST.resolveDescription(schema.ast) ?? "Success"
  })

/** Whether at most `edits` insertions, deletions or replacements of a letter turn `from` into `to` (Levenshtein). */
const isClose = (from: string, to: string, edits: number): boolean => {
  if (from === to) return true
  const [a, b] = [from.slice(1), to.slice(1)]
  if (from[0] === to[0]) return isClose(a, b, edits)
  return edits > 0 && (isClose(a, b, edits - 1) || isClose(a, to, edits - 1) || isClose(from, b, edits - 1))
}

const simplify = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "")

const suggest = (name: string, known: ReadonlyArray<string>): string => {
  const maxEdits = [0, 1, 2].filter((edits) => edits <= name.length / 2)
  const [closest] = maxEdits.flatMap((edits) => known.filter((each) => isClose(simplify(name), simplify(each), edits)))
  return closest === undefined ? "" : ` (did you mean ${closest}?)`
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "required"
    if (issue._tag !== "UnexpectedKey" || issue.ast._tag !== "Objects") return SchemaIssue.defaultLeafHook(issue)
    // Append the known names to the message. `describeIssue` replaces the names with a suggestion.
    return ["unknown", ...issue.ast.propertySignatures.map(({ name }) => String(name))].join("\n")
  }
})

const maxNamed = 10

/** Describes the first ten invalid fields, such as `limit: expected an integer; name: required`. */
export const describeIssue = (issue: SchemaIssue.Issue, nameOf: (path: ReadonlyArray<string>) => string): string => {
  const { issues } = formatIssue(issue)
  const named = issues.slice(0, maxNamed).map(({ message, path: segments = [] }) => {
    const path = segments.map((segment) => String(typeof segment === "object" ? segment.key : segment))
    const name = nameOf(path)
    const [fault, ...known] = message.split("\n")
    return fault === "unknown"
      ? `${name}: unknown ${name.startsWith("query.") ? "parameter" : "field"}${suggest(path.at(-1) ?? "", known)}`
      : `${name}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
  })
  return [...named, ...issues.length > maxNamed ? [`and ${issues.length - maxNamed} more`] : []].join("; ")
}
