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

/** The number of letters to insert, delete or replace (Levenshtein). Ignores case, `_` and `-`. */
const distance = (one: string, other: string): number => {
  const [from = "", to = ""] = [one, other].map((name) => name.toLowerCase().replaceAll(/[_-]/g, ""))
  if (Math.abs(from.length - to.length) > 2) return Infinity
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (const [i, letter] of [...from].entries()) {
    const next = [i + 1]
    for (const [j, above = 0] of row.slice(1).entries()) {
      next.push(Math.min((next[j] ?? 0) + 1, above + 1, (row[j] ?? 0) + Number(letter !== to[j])))
    }
    row = next
  }
  return row.at(-1) ?? 0
}

/** Suggests the known name that `name` misspells, if there is one. */
const suggest = (name: string, known: ReadonlyArray<string>): string => {
  const [[edits, closest] = []] = known.map((each) => [distance(name, each), each] as const).toSorted(([a], [b]) =>
    a - b
  )
  return edits !== undefined && edits <= Math.min(2, name.length / 2) ? ` (did you mean ${closest}?)` : ""
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "required"
    if (issue._tag !== "UnexpectedKey" || issue.ast._tag !== "Objects") return SchemaIssue.defaultLeafHook(issue)
    // Only `describeIssue` gets the unknown name, so pass the known names to it.
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
