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
  // The pattern leaves surrogates out: without the flag `u`, a pattern that excludes them also rejects emoji.
  toJsonSchema: () => ({ pattern: "^[^\\x00]*$" })
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

// `\x22` is a quotation mark, which some generators copy into a string of Python without escaping it.
const idempotencyKeyForm = /^(?:\x22[!#-~]{1,255}\x22|[!#-~]{1,255})$/

/** The `Idempotency-Key` header. Quotation marks are optional: `"a"` and `a` are the same key. */
export const idempotencyKey = (description: string, example: string) => {
  const expected =
    "one idempotency key of 1 to 255 visible ASCII characters without spaces, optionally in quotation marks"
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
const isWithin = (from: string, to: string, edits: number): boolean => {
  if (from === to) return true
  const [a, b] = [from.slice(1), to.slice(1)]
  if (from[0] === to[0]) return isWithin(a, b, edits)
  return edits > 0 && (isWithin(a, b, edits - 1) || isWithin(a, to, edits - 1) || isWithin(from, b, edits - 1))
}

const simplify = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "")

/** Returns the known name that differs from `name` only in case, `_` and `-`. */
export const nearMissOf = (name: string, known: ReadonlyArray<string>): string | undefined =>
  known.find((each) => simplify(each) === simplify(name))

/** Returns the known name that is at most two letters away from `name`, apart from case, `_` and `-`. */
export const closestOf = (name: string, known: ReadonlyArray<string>): string | undefined => {
  const maxEdits = [0, 1, 2].filter((edits) => edits <= name.length / 2)
  return maxEdits.flatMap((edits) => known.filter((each) => isWithin(simplify(name), simplify(each), edits)))[0]
}

const namesOf = ({ ast }: SchemaIssue.UnexpectedKey): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "required"
    // Append the known names to the message. `faultsOf` reads them.
    return issue._tag === "UnexpectedKey"
      ? ["unknown", ...namesOf(issue)].join("\n")
      : SchemaIssue.defaultLeafHook(issue)
  }
})

const faultsOf = (issue: SchemaIssue.Issue) =>
  formatIssue(issue).issues.map(({ message, path: segments = [] }) => {
    const path = segments.map((segment) => String(typeof segment === "object" ? segment.key : segment))
    const [fault, ...known] = message.split("\n")
    return { path, name: path.at(-1) ?? "", parent: path.slice(0, -1).join("."), message, fault, known }
  })

type Fault = ReturnType<typeof faultsOf>[number]

/**
 * Whether `issue` reports nothing but unknown names, none of which differs from a known name only in case, `_` and `-`.
 * The API ignores such names, because a client of a later version may send them.
 */
export const hasOnlyIgnorableNames = (issue: SchemaIssue.Issue, name = ""): boolean => {
  switch (issue._tag) {
    case "Composite":
      return issue.issues.every((each) => hasOnlyIgnorableNames(each, name))
    case "Encoding":
      return hasOnlyIgnorableNames(issue.issue, name)
    case "Pointer":
      return hasOnlyIgnorableNames(issue.issue, String(issue.path.at(-1)))
    case "UnexpectedKey":
      return nearMissOf(name, namesOf(issue)) === undefined
    default:
      return false
  }
}

/** The maximum number of fields that a message names. */
export const maxNamed = 10

/** Describes an unknown name, with the known one that it resembles. */
export const describeUnknown = (field: string, name: string, known: ReadonlyArray<string>): string => {
  const closest = closestOf(name, known)
  const hint = closest === undefined ? "" : `; did you mean "${closest}"?`
  return `${field}: unknown ${field.startsWith("query.") ? "parameter" : "field"}${hint}`
}

interface DescribeOptions {
  /** Whether to name only those unknown names that are near misses of a known one. */
  readonly onlyNearMisses?: boolean
}

/**
 * Describes the first ten invalid fields, such as `limit: expected an integer; name: required`. An unknown name comes
 * with the known one that it resembles, and a missing one with the unknown name that may be a typo of it.
 */
export const describeIssue = (
  issue: SchemaIssue.Issue,
  nameOf: (path: ReadonlyArray<string>) => string,
  { onlyNearMisses = false }: DescribeOptions = {}
): string => {
  const faults = faultsOf(issue)
  const shown = faults.filter(({ fault, known, name }) =>
    fault !== "unknown" || !onlyNearMisses || nearMissOf(name, known) !== undefined
  )
  const typoOf = ({ name, parent }: Fault) =>
    faults.find((other) =>
      other.fault === "unknown" && other.parent === parent && closestOf(other.name, other.known) === name
    )
  const describe = (fault: Fault): string => {
    const field = nameOf(fault.path)
    if (fault.fault === "unknown") return describeUnknown(field, fault.name, fault.known)
    const typo = fault.fault === "required" ? typoOf(fault) : undefined
    if (typo !== undefined) return `${field}: required, but there is "${typo.name}"`
    return `${field}: ${fault.message.charAt(0).toLowerCase()}${fault.message.slice(1)}`
  }
  const named = shown.slice(0, maxNamed).map(describe)
  return [...named, ...shown.length > maxNamed ? [`and ${shown.length - maxNamed} more`] : []].join("; ")
}
