/** Prints each place in documents, comments and messages that our style forbids, and exits with 1 if there is one. */
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { type Passage, proseOfComments, proseOfMarkdown, proseOfMessages } from "./Prose.ts"
import { findingsIn } from "./Style.ts"

/** SPEC.md is the text of the customer, `Style.ts` names the forbidden terms, and the bundle has code of libraries. */
const isExempt = (file: string): boolean =>
  ["src/api/SPEC.md", "test/prose/Style.ts"].includes(file) || file.startsWith("src/console/bundle/")

const files = execFileSync("git", [
  "ls-files",
  "--cached",
  "--others",
  "--exclude-standard",
  "*.md",
  "*.ts",
  "*.tsx",
  "*.js"
], {
  encoding: "utf8"
}).split("\n").filter((file) => file !== "" && !isExempt(file))

const passagesOf = (file: string, source: string): ReadonlyArray<Passage> =>
  file.endsWith(".md")
    ? proseOfMarkdown(source)
    : [...proseOfComments(source, file), ...(file.startsWith("src/") ? proseOfMessages(source, file) : [])]

const findings = files.flatMap((file) => {
  const source = readFileSync(file, "utf8")
  return passagesOf(file, source).flatMap(({ start, text }) =>
    findingsIn(text).map(({ index, reason }) => {
      const line = source.slice(0, start + index).split("\n").length
      return `${file}:${line}: ${reason.replaceAll(/\s+/g, " ")}`
    })
  )
})

for (const finding of findings) console.error(finding)
if (findings.length > 0) process.exitCode = 1
