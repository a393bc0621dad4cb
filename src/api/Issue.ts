import { SchemaIssue } from "effect"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => issue._tag === "MissingKey" ? "required" : SchemaIssue.defaultLeafHook(issue)
})

/** Returns each invalid field, named by `nameOf`, and the expected value: `name: expected …; name: required`. */
export const describe = (issue: SchemaIssue.Issue, nameOf: (path: ReadonlyArray<string>) => string): string =>
  format(issue).issues
    .map(({ message, path = [] }) => {
      const name = nameOf(path.map((segment) => String(typeof segment === "object" ? segment.key : segment)))
      return `${name}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
    })
    .join("; ")
