/** The documents of the repository, and the code blocks in them. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../..", import.meta.url))

const pagesBelow = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)).toSorted()

/** All documents for readers. SPEC.md is the text that the contract follows. */
export const documents: ReadonlyArray<string> = [
  ...readdirSync(root),
  ...["docs", "package", "examples", "deploy"].flatMap(pagesBelow)
].filter((name) => name.endsWith(".md"))

export const readPage = (page: string): string => readFileSync(join(root, page), "utf8")

export interface CodeBlock {
  readonly language: string
  readonly code: string
  /** The number of its first line in the page. */
  readonly line: number
  /** The block after it, if no text stands between them. It is the output of this block. */
  readonly output: CodeBlock | undefined
  /** The reason why no test runs it, from a comment `<!-- not run: … -->` before it. */
  readonly notRun: string | undefined
}

export const codeBlocks = (text: string): ReadonlyArray<CodeBlock> => {
  const fence = /^(?: *<!-- not run: ([^>]*?) -->\n\n?)?( *)```(\w*)\n(.*?)^\2```$/gms
  const blocks: Array<CodeBlock> = []
  let next: { readonly start: number; readonly block: CodeBlock } | undefined
  for (const match of [...text.matchAll(fence)].toReversed()) {
    const { 0: whole, 1: notRun, 2: indent = "", 3: language = "", 4: lines = "", index } = match
    const isAdjacent = next !== undefined && text.slice(index + whole.length, next.start).trim() === ""
    const output = isAdjacent && /^(json|http)$/.test(next?.block.language ?? "") ? next?.block : undefined
    const code = lines.replaceAll(new RegExp(`^${indent}`, "gm"), "")
    const line = text.slice(0, index + whole.indexOf("```")).split("\n").length + 1
    const block = { language, code, line, output, notRun }
    blocks.unshift(block)
    next = { start: index, block }
  }
  return blocks
}

/** Returns the anchors of the headings of a text, as GitHub makes them. */
export const anchorsOf = (text: string): ReadonlyArray<string> =>
  [...text.replaceAll(/^```.*?^```/gms, "").matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, "").replaceAll(" ", "-")
  )
