/** The documents of the repository, and the code blocks in them. */
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../..", import.meta.url))

/** All documents for readers. SPEC.md is the text that the contract follows. */
export const documents = globSync(["*.md", "{docs,package,examples,deploy}/**/*.md", "src/**/README.md"], { cwd: root })
  .toSorted()

export const readPage = (page: string): string => readFileSync(join(root, page), "utf8")

export type CodeBlock = ReturnType<typeof codeBlocks>[number]

/** Returns the code blocks of a text. `output` is the block of JSON or HTTP that follows without text in between. */
export const codeBlocks = (text: string) => {
  const fence =
    /^(?: *<!-- not run: ([^>]*?) -->\n\n?)?( *)```(\w*)\n(.*?)^\2```$(?:(?=\s*```(json|http)\n(.*?)^ *```$)|)/gms
  return [...text.matchAll(fence)].map((match) => {
    const { 0: whole, 1: notRun, 2: indent = "", 3: language = "", 4: lines = "", 5: kind, 6: next = "", index } = match
    const outdent = (block: string) => block.replaceAll(new RegExp(`^${indent}`, "gm"), "")
    return {
      language,
      code: outdent(lines),
      /** The number of its first line in the page. */
      line: text.slice(0, index + whole.indexOf("```")).split("\n").length + 1,
      output: kind === undefined ? undefined : { language: kind, code: outdent(next) },
      /** The reason why no test runs it, from a comment `<!-- not run: … -->` before it. */
      notRun
    }
  })
}

/** Returns the anchors of the headings of a text, as GitHub makes them. */
export const anchorsOf = (text: string): ReadonlyArray<string> =>
  [...text.replaceAll(/^```.*?^```/gms, "").matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, "").replaceAll(" ", "-")
  )
