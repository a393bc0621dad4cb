/** What is wrong with a value, in words. */
import { SchemaIssue } from "effect"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => issue._tag === "MissingKey" ? "required" : SchemaIssue.defaultLeafHook(issue)
})

/** Each place that is wrong, as `nameOf` names it by the path to it, and what it must be. */
export const describe = (issue: SchemaIssue.Issue, nameOf: (path: ReadonlyArray<string>) => string): string =>
  format(issue).issues
    .map(({ message, path = [] }) => {
      const name = nameOf(path.map((segment) => String(typeof segment === "object" ? segment.key : segment)))
      return `${name}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
    })
    .join("; ")
