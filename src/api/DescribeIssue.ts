import { SchemaIssue } from "effect"

/** Whether at most `edits` insertions, deletions or replacements of a character turn `from` into `to` (Levenshtein). */
const isWithin = (from: string, to: string, edits: number): boolean => {
  if (from === to) return true
  const [a, b] = [from.slice(1), to.slice(1)]
  if (from[0] === to[0]) return isWithin(a, b, edits)
  return edits > 0 && (isWithin(a, b, edits - 1) || isWithin(a, to, edits - 1) || isWithin(from, b, edits - 1))
}

const simplify = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "")

/** Returns the known name that equals `name` apart from case, `_` and `-`, or `undefined` if there is none. */
export const nearMissOf = (name: string, known: ReadonlyArray<string>): string | undefined =>
  known.find((each) => simplify(each) === simplify(name))

/**
 * Returns the known name that is the fewest edits away from `name`: at most two, and at most half as many as `name` has
 * characters. Differences in case, `_` and `-` are no edits. Returns `undefined` if no name is that close.
 */
export const closestOf = (name: string, known: ReadonlyArray<string>): string | undefined => {
  const maxEdits = [0, 1, 2].filter((edits) => edits <= name.length / 2)
  return maxEdits.flatMap((edits) => known.filter((each) => isWithin(simplify(name), simplify(each), edits)))[0]
}

const namesOf = ({ ast }: SchemaIssue.UnexpectedKey): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "required"
    // Append the known names to the message: `faultsOf` takes them out again for suggestions.
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
 * Whether `issue` reports only unknown names, and each of them differs from all known names in more than case, `_` and
 * `-`. The API under `/v1` ignores such names, because a client of a later version may send them.
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

/** The maximum number of faults that a message describes. */
export const maxNamed = 10

/** Describes an unknown name, and suggests the closest known name, if one is close. `field` is `name` with its path. */
export const describeUnknown = (field: string, name: string, known: ReadonlyArray<string>): string => {
  const closest = closestOf(name, known)
  const hint = closest === undefined ? "" : `; did you mean "${closest}"?`
  return `${field}: unknown ${field.startsWith("query.") ? "parameter" : "field"}${hint}`
}

interface DescribeOptions {
  /** Whether to report only those unknown names that equal a known one apart from case, `_` and `-`. */
  readonly onlyNearMisses?: boolean
}

/**
 * Describes the first ten faults, such as `body.name: required; body.status: expected one of …`, and counts the others.
 * For an unknown name, suggests the closest known name, if one is close. For a missing field, quotes an unknown name
 * that is probably a typo of it.
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
