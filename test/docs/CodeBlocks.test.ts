/** Tests the code blocks of the documents: their languages, and that they parse. `Examples.long.test.ts` runs those of the API. */
import { assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import ts from "typescript-5.9"
import { parseAllDocuments } from "yaml"
import { codeBlocks, documents, readPage } from "../support/Documents.ts"

/** Returns the error of a shell script that does not parse. */
const shellError = (code: string): string => spawnSync("bash", ["-n"], { input: code, encoding: "utf8" }).stderr

const typeScriptError = (code: string): string =>
  (ts.transpileModule(code, { reportDiagnostics: true, compilerOptions: { target: ts.ScriptTarget.Latest } })
    .diagnostics ??
    []).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n")).join("\n")

const pythonError = (code: string): string =>
  spawnSync("python3", ["-c", "import ast, sys; ast.parse(sys.stdin.read())"], { input: code, encoding: "utf8" }).stderr

const jsonError = (code: string): string => {
  try {
    JSON.parse(code)
    return ""
  } catch (error) {
    return String(error)
  }
}

/** Each language of the documents, and the function that returns the error of a block that does not parse. */
const parsers: Readonly<Record<string, (code: string) => string>> = {
  sh: shellError,
  js: typeScriptError,
  ts: typeScriptError,
  json: jsonError,
  python: pythonError,
  yaml: (code) => parseAllDocuments(code).flatMap(({ errors }) => errors).join("\n"),
  sql: (code) => code.trimEnd().endsWith(";") ? "" : "The last statement has no end.",
  http: (code) => /^HTTP\/1\.1 \d{3} /.test(code) ? "" : "There is no status line.",
  mermaid: (code) => /^(?:flowchart|sequenceDiagram)\b/.test(code) ? "" : "The diagram has no known kind.",
  text: () => ""
}

const joined = new Set(["sh", "python"])

/** Returns an error for each language of a text that is unknown, or whose blocks do not parse. */
const faultsOf = (text: string): ReadonlyArray<string> =>
  Object.entries(Object.groupBy(codeBlocks(text), ({ language }) => language)).flatMap(([language, blocks = []]) => {
    const parser = parsers[language]
    if (parser === undefined) return blocks.map(({ line }) => `line ${line}: unknown language "${language}"`)
    // One process parses all blocks of a shell or of Python.
    const sources = joined.has(language) ? [blocks.map(({ code }) => code).join("\n")] : blocks.map(({ code }) => code)
    return sources.map(parser).filter((error) => error !== "").map((error) => `${language}: ${error}`)
  })

describe("The code blocks", () => {
  for (const document of documents) {
    it(`of ${document} have a known language, and parse`, () => {
      assert.deepStrictEqual(faultsOf(readPage(document)), [])
    })
  }

  it("are checked in each language", () => {
    const broken = {
      sh: "if true",
      js: "const = 1",
      ts: "let a: = 1",
      json: "{",
      python: "def",
      yaml: "a: [",
      sql: "SELECT",
      http: "OK",
      mermaid: "pie",
      basic: "GOTO"
    }
    for (const [language, code] of Object.entries(broken)) {
      assert.strictEqual(faultsOf(`\`\`\`${language}\n${code}\n\`\`\`\n`).length, 1, language)
    }
  })

  it("are found, with their line, their output and the reason why they are not run", () => {
    const text =
      "# A\n\n```sh\nls\n```\n\n```json\n{}\n```\n\ntext\n\n```json\n[]\n```\n\n1. A\n\n   <!-- not run: no B -->\n   ```sh\n   b\n   ```\n"
    const [shell, output, other, indented] = codeBlocks(text)
    assert.deepInclude(shell, { language: "sh", code: "ls\n", line: 4, notRun: undefined })
    assert.strictEqual(shell?.output, output)
    assert.deepInclude(other, { language: "json", code: "[]\n", output: undefined })
    assert.deepInclude(indented, { language: "sh", code: "b\n", line: 21, notRun: "no B" })
  })

  it("are all found: each fence of a document belongs to one", () => {
    for (const document of documents) {
      const text = readPage(document)
      assert.lengthOf(codeBlocks(text), [...text.matchAll(/^ *```/gm)].length / 2, document)
    }
  })
})
