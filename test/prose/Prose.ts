/** Finds the prose in Markdown and TypeScript. Markup and code become filler of the same length, so that positions stay. */
import ts from "typescript-5.9"

/** A paragraph, a cell of a table or a comment, in which each sentence counts for itself. */
export interface Passage {
  readonly text: string
  /** The position of its first character in the file. */
  readonly start: number
}

/** A word that no rule forbids. A sentence can begin with it. */
const word = (code: string): string => "X".padEnd(code.length, "x")
const space = (markup: string): string => markup.replaceAll(/[^\n]/g, " ")

/** Replaces markup, code and quotations of Markdown. */
const withoutMarkup = (text: string): string =>
  text
    .replaceAll(/^( *)(```|~~~).*?^\1\2 *$/gms, space)
    .replaceAll(/<!--.*?-->/gs, space)
    .replaceAll(/(`+)(?!`).+?(?<!`)\1(?!`)/gs, word)
    .replaceAll(/^ *>.*$/gm, space)
    .replaceAll(/"[^"\n]*"/g, word)
    .replaceAll(/!?\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^)\s]*)\)/g, (link, label: string) =>
      ` ${label}${space(link.slice(label.length + 1))}`)
    .replaceAll(/https?:\/\/[^\s)>]+/g, word)
    .replaceAll("<br>", " |  ")
    .replaceAll(/<\/?\w+[^>\n]*>/g, space)

/** Splits a text into passages wherever the separator matches. */
const split = (text: string, separator: RegExp): ReadonlyArray<Passage> => {
  const passages: Array<Passage> = []
  let start = 0
  for (const { 0: match, index } of [...text.matchAll(separator), { 0: "", index: text.length }]) {
    const passage = text.slice(start, index).replaceAll("\n", " ")
    if (/\p{L}/u.test(passage)) {
      passages.push({ text: passage.trim(), start: start + passage.length - passage.trimStart().length })
    }
    start = index + match.length
  }
  return passages
}

/** Blank lines, headings, items, cells and `<br>` end a passage. */
const separator = /\n\s*\n|^ *(?:[-*]|\d+\.) +|^#+ .*$|(?<!\\)\||^ *\|?[ :|-]+$/gm

/** Headings are phrases: they have terms, but no sentence goes on behind them. */
const headings = (text: string): ReadonlyArray<Passage> =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(({ 0: line, 1: heading = "", index }) => ({
    text: heading,
    start: index + line.length - heading.length
  }))

export const proseOfMarkdown = (source: string): ReadonlyArray<Passage> => {
  const text = withoutMarkup(source).replaceAll(/(?<!\w)[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}(?!\w)/g, space)
  return [...split(text, separator), ...headings(text)]
}

const parse = (source: string, file: string): ts.SourceFile =>
  ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true)

const commentRanges = (source: string, file: string): ReadonlyArray<ts.CommentRange> => {
  const ranges = new Map<number, ts.CommentRange>()
  const visit = (node: ts.Node): void => {
    if (node.kind === ts.SyntaxKind.JsxText) return
    for (const range of ts.getLeadingCommentRanges(source, node.pos) ?? []) ranges.set(range.pos, range)
    for (const range of ts.getTrailingCommentRanges(source, node.end) ?? []) ranges.set(range.pos, range)
    for (const child of node.getChildren()) visit(child)
  }
  visit(parse(source, file))
  return [...ranges.values()].toSorted((a, b) => a.pos - b.pos)
}

/** The prose of comments. Lines of `//` directly below each other are one passage. */
export const proseOfComments = (source: string, file = "file.ts"): ReadonlyArray<Passage> => {
  const comments: Array<{ readonly pos: number; end: number; readonly isLine: boolean }> = []
  for (const { end, pos } of commentRanges(source, file)) {
    const last = comments.at(-1)
    const isLine = /^[ \t]*$/.test(source.slice(source.lastIndexOf("\n", pos) + 1, pos))
    const isNextLine = last?.isLine === true && isLine && source.slice(last.end, pos).trim() === "" &&
      !source.slice(last.end + 1, pos).includes("\n")
    if (isNextLine) last.end = end
    else comments.push({ pos, end, isLine })
  }
  return comments.flatMap(({ end, pos }) => {
    const text = source.slice(pos, end)
      .replaceAll(/^[ \t]*(?:\/\/+|\/\*\*?|\*\/|\*(?!\*))|\*\/$/gm, space)
      .replaceAll(/@\w+|\{@link ([^}]*)\}/g, word)
    return proseOfMarkdown(text).map((passage) => ({ ...passage, start: pos + passage.start }))
  })
}

/** The prose of messages: string literals of one line with at least four words, outside of tagged templates such as SQL. */
export const proseOfMessages = (source: string, file = "file.ts"): ReadonlyArray<Passage> => {
  const passages: Array<Passage> = []
  const visit = (node: ts.Node): void => {
    if (ts.isTaggedTemplateExpression(node)) return
    if (ts.isStringLiteralLike(node) || ts.isTemplateExpression(node)) {
      const start = node.getStart() + 1
      const text = source.slice(start, node.end - 1).replaceAll(/\$\{[^}]*\}/g, word)
      if (!text.includes("\n") && (text.match(/[a-z]{2,}/gi)?.length ?? 0) > 3) {
        passages.push(...proseOfMarkdown(text).map((passage) => ({ ...passage, start: start + passage.start })))
      }
      return
    }
    if (ts.isJsxText(node)) {
      passages.push(...proseOfMarkdown(node.text).map((passage) => ({ ...passage, start: node.pos + passage.start })))
    }
    ts.forEachChild(node, visit)
  }
  visit(parse(source, file))
  return passages
}
