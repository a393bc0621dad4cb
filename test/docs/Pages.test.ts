/** Tests that the pages name files, scripts and headings that exist, and that the callers' pages have the whole contract. */
import { assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import * as Errors from "../../src/api/Errors.ts"
import { openApiDocument } from "../../src/api/OpenApiDocument.ts"
import { planLimits } from "../../src/api/Plans.ts"
import { anchorsOf, codeBlocks, documents, readPage, root } from "../support/Documents.ts"

const withoutCode = (text: string): string => text.replaceAll(/^ *```.*?^ *```$/gms, "").replaceAll(/`[^`\n]*`/g, "``")

/** Returns the links of a text that lead to no file or to no heading of a file. */
const brokenLinks = (document: string, text: string): ReadonlyArray<string> =>
  [...withoutCode(text).matchAll(/\]\(([^)]*)\)/g)].map(([, link = ""]) => link).filter((link) => {
    if (/^https?:/.test(link)) return false
    const [file = "", anchor = ""] = link.split("#")
    const path = file === "" ? document : join(dirname(document), file)
    if (file !== "" && !existsSync(join(root, path))) return true
    return anchor !== "" && !anchorsOf(file === "" ? text : readPage(path)).includes(anchor)
  })

/** The files that a text names in code, each with the places where it may be. */
const filesOf = (text: string): ReadonlyArray<ReadonlyArray<string>> =>
  [...text.matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|md|yaml))`/g)].map(([, name = ""]) => [
    join(root, name),
    join(root, "src", name)
  ])

const parsers: Readonly<Record<string, (code: string) => boolean>> = {
  sh: (code) => spawnSync("bash", ["-n"], { input: code }).status === 0,
  json: (code) => JSON.parse(code) !== undefined
}

for (const document of documents) {
  const text = readPage(document)

  describe(`The page ${document}`, () => {
    it("names only files and scripts that exist", () => {
      for (const places of filesOf(text)) assert.isTrue(places.some((place) => existsSync(place)), places[0])
      const { scripts } = JSON.parse(readPage("package.json"))
      for (const [, name = ""] of text.matchAll(/npm run ([\w:]+)/g)) assert.property(scripts, name)
    })

    it("has no broken link", () => {
      assert.deepStrictEqual(brokenLinks(document, text), [])
    })

    it("has shell and JSON blocks that parse", () => {
      for (const { code, language, line } of codeBlocks(text)) {
        assert.isTrue(parsers[language]?.(code) ?? true, `${document}:${line}`)
      }
    })
  })
}

describe("A link", () => {
  it("is broken if its file or its heading does not exist", () => {
    const text =
      "# One\n[a](#one) [b](#two) [c](../README.md) [d](none.md) [e](../README.md#start) [f](../README.md#none)"
    assert.deepStrictEqual(brokenLinks("docs/new.md", text), ["#two", "none.md", "../README.md#none"])
  })
})

describe("The pages", () => {
  it("are at most 16, and the README has at most 6 kB and links to all of docs", () => {
    assert.isAtMost(documents.length, 16, documents.join())
    const readme = readPage("README.md")
    assert.isAtMost(Buffer.byteLength(readme), 6_000)
    for (const page of documents.filter((name) => name.startsWith("docs/"))) assert.include(readme, `](${page})`)
  })
})

/** The parts of the OpenAPI document that the pages describe. */
interface Contract {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<string, {
          readonly parameters: ReadonlyArray<{ readonly name: string }>
          readonly responses: Readonly<Record<string, { readonly headers?: Readonly<Record<string, unknown>> }>>
        }>
      >
    >
  >
  readonly info: { readonly version: string }
  readonly components: {
    readonly schemas: { readonly Pet: { readonly properties: Readonly<Record<string, unknown>> } }
  }
}

describe("The callers' pages", () => {
  const { components, info, paths }: Contract = JSON.parse(JSON.stringify(openApiDocument))
  const operations = Object.values(paths).flatMap((path) => Object.values(path))
  const reference = readPage("docs/reference.md")
  const errors = readPage("docs/errors-and-limits.md")

  it("have a row for each error code, with its status, cause, charge and retry", () => {
    for (const error of Errors.errorClasses) {
      const { code: { schema: { literal: code } }, status: { schema: { literal: status } } } = error.fields
      assert.match(errors, new RegExp(`^\\| ${status} \\| .*\`${code}\`.* \\|$`, "m"))
    }
  })

  it("name every operation, parameter, field, status and header of the OpenAPI document", () => {
    for (const [path, methods] of Object.entries(paths)) {
      for (const [method, { parameters }] of Object.entries(methods)) {
        assert.include(reference, `\`${method.toUpperCase()} /v1${path}\``)
        for (const { name } of parameters) assert.include(reference.toLowerCase(), name.toLowerCase())
      }
    }
    for (const name of Object.keys(components.schemas.Pet.properties)) assert.include(reference, `| \`${name}\` |`)
    for (const [status, { headers = {} }] of operations.flatMap(({ responses }) => Object.entries(responses))) {
      assert.match(reference + errors, new RegExp(`\\b${status}\\b`))
      for (const name of Object.keys(headers)) assert.include(reference + errors, `\`${name}\``)
    }
    assert.include(reference, `the interface version is ${info.version}`)
  })

  it("have the limits of every plan", () => {
    for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
      const row = `| ${plan} | ${perMinute.toLocaleString("en")} | ${perDay.toLocaleString("en")} |`
      assert.include(errors.toLowerCase(), row)
    }
  })
})

describe("The database page", () => {
  it("describes each table of the schema", () => {
    const folder = join(root, "src/database")
    const source = readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts")).map((name) => readPage(join("src/database", name))).join("")
    const tables = [...source.matchAll(/CREATE TABLE (\w+)/g)].map(([, table = ""]) => table)
    assert.isAbove(tables.length, 5)
    for (const table of tables) assert.include(readPage("docs/database.md"), `| \`${table}\` |`)
  })
})
